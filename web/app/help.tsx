// The list of keys and gestures.
import { useEffect, useRef } from 'preact/hooks';
import { FOCUS_HELP, KEY_ACTIONS, POINTER_HELP } from './keyboard.ts';
import { isHelpOpen } from './state.ts';

export function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (isHelpOpen.value) dialog.current?.showModal();
  }, [isHelpOpen.value]);
  if (!isHelpOpen.value) return null;
  return (
    <dialog
      ref={dialog}
      class="help"
      aria-labelledby="help-title"
      onClose={() => {
        isHelpOpen.value = false;
      }}
    >
      <div class="card-head">
        <h2 id="help-title">Keys and gestures</h2>
        <button type="button" class="small" onClick={() => dialog.current?.close()}>
          Close
        </button>
      </div>
      <div class="help-grid">
        <table aria-label="Keys">
          <tbody>
            {KEY_ACTIONS.map(({ keys, what }) => (
              <tr key={what}>
                <td>
                  {keys.map((key) => (
                    <kbd key={key}>{key.length === 1 ? key.toUpperCase() : key === 'Escape' ? 'Esc' : key}</kbd>
                  ))}
                </td>
                <td>{what}</td>
              </tr>
            ))}
          </tbody>
        </table>
        <div>
          <table aria-label="Gestures">
            <tbody>
              {POINTER_HELP.map(([gesture, what]) => (
                <tr key={gesture}>
                  <td>{gesture}</td>
                  <td>{what}</td>
                </tr>
              ))}
            </tbody>
          </table>
          <table aria-label="Keys of the part that has the focus">
            <tbody>
              {FOCUS_HELP.map(([keys, what]) => (
                <tr key={what}>
                  <td>
                    {keys.map((key) => (
                      <kbd key={key}>{key}</kbd>
                    ))}
                  </td>
                  <td>{what}</td>
                </tr>
              ))}
            </tbody>
          </table>
          <p class="faint">
            The timeline stacks live memory; where many events share a pixel, it shows the one at which most is live. The map shows all held
            addresses side by side, over time. Grey memory is reserved but free: it is lost. A stitched block is drawn at each of its
            pieces.
          </p>
        </div>
      </div>
    </dialog>
  );
}

// The field for the memory of the GPU in question. It says how it understands what is typed.
import { useState } from 'preact/hooks';
import { formatBytes } from '../../src/base/bytes.ts';
import { isBare, parseSize } from '../../src/view/sizes.ts';
import { tryCapacity } from '../app/opening.ts';
import { analysis, capacity } from '../app/state.ts';

const SIZES = ['16 GiB', '24 GiB', '32 GiB', '40 GiB', '48 GiB', '80 GiB', '141 GiB'];

export function CapacityField() {
  const { capacity: limit, capacityOrigin: origin } = analysis.value?.analysis ?? {};
  const [text, setText] = useState<string | undefined>(undefined);
  const [isWrong, setWrong] = useState(false);
  const [wasBare, setBare] = useState(false);
  const apply = () => {
    if (text === undefined) return;
    const bytes = understood(text);
    setWrong(bytes === 'wrong');
    if (bytes === 'wrong') return;
    setBare(isBare(text));
    setText(undefined);
    tryCapacity(bytes);
  };
  const given = capacity.value ?? limit;
  return (
    <form
      class="capacity"
      onSubmit={(event) => {
        event.preventDefault();
        apply();
      }}
    >
      <label for="capacity">GPU memory</label>
      <input
        id="capacity"
        list="capacities"
        size={10}
        placeholder="any"
        value={text ?? (given ? formatBytes(given) : '')}
        aria-invalid={isWrong}
        aria-describedby="capacity-note"
        title="the part that the job can get; empty: as recorded"
        onInput={(event) => {
          setText(event.currentTarget.value);
          setWrong(false);
        }}
        onBlur={apply}
      />
      <datalist id="capacities">
        {SIZES.map((size) => (
          <option key={size} value={size} />
        ))}
      </datalist>
      <span class="faint capacity-note" id="capacity-note" data-testid="capacity-note" aria-live="polite">
        {isWrong ? 'write it like 24GiB' : noteFor(text, wasBare, origin)}
      </span>
    </form>
  );
}

/** Undefined: as recorded. */
function understood(text: string): number | undefined | 'wrong' {
  if (text.trim() === '') return undefined;
  try {
    const bytes = parseSize(text);
    return bytes > 0 ? bytes : 'wrong';
  } catch {
    return 'wrong';
  }
}

function noteFor(text: string | undefined, wasBare: boolean, origin: string | undefined): string {
  if (text !== undefined) {
    const bytes = understood(text);
    return bytes === undefined ? 'empty: as recorded' : bytes === 'wrong' ? '' : `means ${formatBytes(bytes)}`;
  }
  if (capacity.value !== undefined) return wasBare ? 'a number alone means GiB' : '';
  if (origin === 'inferred') return 'at most, as the failures show';
  return origin === 'recorded' ? 'as recorded' : '';
}

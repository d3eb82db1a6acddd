// What to do: one line to copy per suggestion with its effect, and how to share what is seen here.
import { useState } from 'preact/hooks';
import { analysis, main } from '../app/state.ts';

interface AdviceLine {
  readonly line: string;
  readonly effect: string;
}

export function Advice() {
  const known = analysis.value;
  if (!known || (known.rows.length === 0 && !known.isComplete)) return null;
  const advice = known.json['advice'] as unknown as AdviceLine[];
  const name = main.value?.source.name ?? 'FILE';
  return (
    <section id="advice" class="card" tabIndex={-1} aria-labelledby="advice-title">
      <h2 id="advice-title">What to do</h2>
      {advice.map(({ line, effect }) => (
        <div class="advice" key={line}>
          <CopyLine line={line} />
          <p class="faint">{effect}</p>
        </div>
      ))}
      {known.noAdvice && <p>{known.noAdvice}</p>}
      <div class="advice">
        <CopyLine line={`weir report ${/\s/.test(name) ? `'${name}'` : name} -o report.html`} />
        <p class="faint">
          shares this page as one file that needs no network; the address bar holds the view, the cursor and the selection
        </p>
      </div>
    </section>
  );
}

export function CopyLine({ line }: { line: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(line);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <div class="copy-line">
      <code>{line}</code>
      <button type="button" class="small" aria-label={`Copy ${line}`} onClick={() => void copy().catch(() => setCopied(false))}>
        {isCopied ? 'Copied' : 'Copy'}
      </button>
    </div>
  );
}

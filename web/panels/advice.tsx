// What to do: a line to copy for each suggestion, with its effect; and how to share the page.
import { useState } from 'preact/hooks';
import { adviceEffect, adviceLine, noAdvice } from '../../src/report/words/advice.ts';
import { shellWord } from '../../src/report/words/shell.ts';
import { analysis, main } from '../app/state.ts';

export function Advice() {
  const known = analysis.value;
  if (!known || (known.analysis.whatIf.length === 0 && !known.isComplete)) return null;
  const { advice, peak, whatIf } = known.analysis;
  const name = main.value?.source.name ?? 'FILE';
  return (
    <section id="advice" class="card" tabIndex={-1} aria-labelledby="advice-title">
      <h2 id="advice-title">What to do</h2>
      {advice.map((suggestion) => (
        <div class="advice" key={adviceLine(suggestion)}>
          <CopyLine line={adviceLine(suggestion)} />
          <p class="faint">{adviceEffect(suggestion)}</p>
        </div>
      ))}
      {known.isComplete && advice.length === 0 && peak.reserved > 0 && <p>{noAdvice(whatIf)}</p>}
      <div class="advice">
        <CopyLine line={`weir report ${shellWord(name)} -o report.html`} />
        <p class="faint">
          writes this page as one file that needs no network; the address bar holds the view, the cursor and the selection
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

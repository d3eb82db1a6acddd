// What to do: a line to copy for each suggestion, with its effect. It stands in the verdict, right below what went wrong.
import { adviceEffect, adviceLine, noAdvice } from '../../src/report/words/advice.ts';
import { shellWord } from '../../src/report/words/shell.ts';
import { main } from '../app/state.ts';
import { CopyLine } from './copy-line.tsx';
import { advised } from './what-if-rows.ts';

/** Suggestions that are not folded. A run that failed needs more of them. */
const SHOWN = { failed: 2, other: 1 };

export function Advice() {
  const known = advised.value;
  if (!known) return null;
  const { facts, state } = known;
  const { advice, peak, whatIf } = facts;
  const shown = facts.oom ? SHOWN.failed : SHOWN.other;
  const rest = advice.slice(shown);
  return (
    <div class={`advice-box ${state}`} data-testid="advice" aria-busy={state !== 'final'}>
      <h3>What to do{state === 'so-far' && <span class="faint"> (so far; more allocators are being tried)</span>}</h3>
      <Suggestions advice={advice.slice(0, shown)} />
      {rest.length > 0 && (
        <details class="more">
          <summary>{rest.length === 1 ? '1 more suggestion' : `${rest.length} more suggestions`}</summary>
          <Suggestions advice={rest} />
        </details>
      )}
      {state === 'final' && advice.length === 0 && peak.reserved > 0 && <p>{noAdvice(whatIf)}</p>}
    </div>
  );
}

function Suggestions({ advice }: { advice: Parameters<typeof adviceLine>[0][] }) {
  return (
    <>
      {advice.map((suggestion) => (
        <div class="advice" key={adviceLine(suggestion)}>
          <CopyLine line={adviceLine(suggestion)} />
          <p class="faint">{adviceEffect(suggestion)}</p>
        </div>
      ))}
    </>
  );
}

/** How to give the page to others. */
export function Share() {
  // A run of other values is in no file.
  if (main.value?.source.info?.values) return null;
  const name = main.value?.source.name ?? 'FILE';
  return (
    <section id="share" class="card" tabIndex={-1} aria-labelledby="share-title">
      <h2 id="share-title">Share this page</h2>
      <CopyLine line={`weir report ${shellWord(name)} -o report.html`} />
      <p class="faint">writes this page as one file that needs no network; the address bar holds the view, the cursor and the selection</p>
    </section>
  );
}

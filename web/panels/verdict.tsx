// The verdict: what went wrong in a sentence, and where the memory was at the peak as one bar.
import { formatBytes } from '../../src/base/bytes.ts';
import type { Analysis } from '../../src/report/analysis.ts';
import { lossesOf, type MemoryPart, partsOf } from '../../src/report/losses.ts';
import type { Breakdown, OomFinding } from '../../src/report/moment.ts';
import { formatShare, formatTimes } from '../../src/report/words/numbers.ts';
import {
  floorSentence,
  HELD_SINCE_START,
  hostMemorySentence,
  lossCause,
  NOTHING_RESERVED,
  oomCause,
  oomHeadline,
  oomPinning,
  oomState,
  PART_NAMES,
  peakHeadline,
  privatePoolsSentence,
} from '../../src/report/words/verdict.ts';
import { Progress } from '../app/progress.tsx';
import { analysing, analysis, main } from '../app/state.ts';
import { Advice } from './advice.tsx';

export function Verdict() {
  const known = analysis.value;
  return (
    <section
      id="verdict"
      class={`card${known ? '' : ' waiting'}${main.value?.gpu.ooms.length ? ' failed' : ''}`}
      tabIndex={-1}
      aria-labelledby="verdict-title"
    >
      <h1 id="verdict-title">Verdict</h1>
      {known ? <Words facts={known.analysis} /> : <Progress note={analysing.value ?? { doing: 'reading', fraction: 0 }} />}
    </section>
  );
}

function Words({ facts }: { facts: Analysis }) {
  const { warnings, oom, summary, peak, hostMemory } = facts;
  const pools = privatePoolsSentence(peak);
  const host = hostMemorySentence(hostMemory);
  const peakWords = peak.reserved > 0 ? `${peakHeadline(peak).what}, ${peakHeadline(peak).details}.` : NOTHING_RESERVED;
  return (
    <>
      {warnings.map((warning) => (
        <p class="warning" key={warning.code}>
          <strong>Warning:</strong> {warning.message}
        </p>
      ))}
      <div class="verdict-grid">
        <div>
          <p class={oom ? 'headline bad' : 'headline'} data-testid="headline">
            {oom ? `${oomHeadline(oom, summary.ooms).what} ${oomHeadline(oom, summary.ooms).details}` : peakWords}
          </p>
          {oom && <p>{oomCause(oom)}</p>}
          {oom && <Request oom={oom} />}
          <Advice />
        </div>
        <div>
          {oom && <p class="peak-line">{peakWords}</p>}
          {peak.reserved > 0 && (
            <>
              <Bar parts={partsOf(peak)} whole={peak.reserved} />
              <Losses peak={peak} />
            </>
          )}
          {oom && <p>{[oomState(oom), oomPinning(oom)].join(' ')}</p>}
          {pools && <p class="faint">{pools}</p>}
          {peak.reserved > 0 && <p class="faint">{floorSentence(summary)}</p>}
          {host && (
            <p class="faint" data-testid="host-memory">
              {host}
            </p>
          )}
        </div>
      </div>
    </>
  );
}

/** Where the failed request came from: the line of the user's own code, the rest folded. */
function Request({ oom: { site, stack } }: { oom: OomFinding }) {
  if (site === undefined) return null;
  return (
    <div class="request" data-testid="request">
      <p>
        Requested at <code>{site}</code>
      </p>
      <details class="more">
        <summary>{formatTimes(stack.length, 'frame', 'frames')} of its call stack, innermost first</summary>
        <ol class="frames">
          {stack.map(({ name, filename, line }, depth) => (
            <li key={depth}>{filename === '' ? name : `${name}  ${filename}:${line}`}</li>
          ))}
        </ol>
      </details>
    </div>
  );
}

function Losses({ peak }: { peak: Breakdown }) {
  const rows = lossesOf(peak).map((loss) => ({ bytes: loss.bytes, cause: lossCause(loss, peak) }));
  if (peak.heldSinceStart > 0) rows.push({ bytes: peak.heldSinceStart, cause: HELD_SINCE_START });
  return (
    <table class="losses" aria-label="What was lost at the peak">
      <tbody>
        {rows.map(({ bytes, cause }) => (
          <tr key={cause}>
            <td class="right">{formatBytes(bytes)}</td>
            <td class="right faint">{formatShare(bytes, peak.reserved)}</td>
            <td>{cause}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** As much as there is room for; the table below has the rest. */
function labelFor({ kind, bytes }: MemoryPart, share: number): string {
  if (share > 0.34) return `${PART_NAMES[kind]} ${formatBytes(bytes)}`;
  return share > 0.2 ? PART_NAMES[kind] : '';
}

function Bar({ parts, whole }: { parts: readonly MemoryPart[]; whole: number }) {
  return (
    <div class="bar" role="img" aria-label={parts.map(({ kind, bytes }) => `${PART_NAMES[kind]} ${formatBytes(bytes)}`).join(', ')}>
      {parts.map((part) => (
        <span
          key={part.kind}
          class={`bar-part part-${part.kind}`}
          data-bytes={part.bytes}
          title={`${PART_NAMES[part.kind]}: ${formatBytes(part.bytes)}`}
          style={{ flexGrow: part.bytes / whole }}
        >
          {labelFor(part, part.bytes / whole)}
        </span>
      ))}
    </div>
  );
}

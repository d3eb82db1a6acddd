// The verdict: what went wrong in a sentence, and where the memory was at the peak as one bar.
import { formatBytes } from '../../src/base/bytes.ts';
import type { Analysis } from '../../src/report/analysis.ts';
import { lossesOf, type MemoryPart, partsOf } from '../../src/report/losses.ts';
import type { Breakdown } from '../../src/report/moment.ts';
import { formatShare } from '../../src/report/words/numbers.ts';
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
import { analysing, analysis } from '../app/state.ts';

export function Verdict() {
  const known = analysis.value;
  return (
    <section id="verdict" class="card" tabIndex={-1} aria-labelledby="verdict-title">
      <h2 id="verdict-title">Verdict</h2>
      {known ? <Words facts={known.analysis} /> : <Progress note={analysing.value ?? { doing: 'reading', fraction: 0 }} />}
    </section>
  );
}

function Words({ facts }: { facts: Analysis }) {
  const { warnings, oom, summary, peak, hostMemory } = facts;
  const pools = privatePoolsSentence(peak);
  const host = hostMemorySentence(hostMemory);
  return (
    <>
      {warnings.map((warning) => (
        <p class="warning" key={warning.code}>
          <strong>Warning:</strong> {warning.message}
        </p>
      ))}
      {oom && (
        <>
          <p class="headline bad" data-testid="headline">
            {oomHeadline(oom, summary.ooms).what} {oomHeadline(oom, summary.ooms).details}
          </p>
          {[oomCause(oom), oomState(oom), oomPinning(oom)].map((sentence) => sentence && <p key={sentence}>{sentence}</p>)}
        </>
      )}
      <p class={oom ? 'peak-line' : 'headline'} data-testid={oom ? undefined : 'headline'}>
        {peak.reserved > 0 ? `${peakHeadline(peak).what}, ${peakHeadline(peak).details}.` : NOTHING_RESERVED}
      </p>
      {peak.reserved > 0 && (
        <>
          <Bar parts={partsOf(peak)} whole={peak.reserved} />
          <Losses peak={peak} />
          {pools && <p class="faint">{pools}</p>}
          <p class="faint">{floorSentence(summary)}</p>
        </>
      )}
      {host && (
        <p class="faint" data-testid="host-memory">
          {host}
        </p>
      )}
    </>
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

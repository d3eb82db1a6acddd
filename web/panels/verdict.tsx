// The verdict: what went wrong in a sentence, and where the memory was at the peak as one bar.
import { formatBytes } from '../../src/base/bytes.ts';
import { Progress } from '../app/progress.tsx';
import { analysing, analysis } from '../app/state.ts';

interface Part {
  readonly key: string;
  readonly bytes: number;
  readonly what: string;
}

/** The parts of reserved memory at the peak, in use first. The words are the report's. */
function partsOf(peak: Record<string, number>): Part[] {
  const parts: Part[] = [
    { key: 'used', bytes: peak['requested'] ?? 0, what: 'in use' },
    { key: 'fragmented', bytes: peak['fragmented'] ?? 0, what: 'fragmented' },
    { key: 'streams', bytes: peak['otherStreams'] ?? 0, what: 'cached for other streams' },
    { key: 'pools', bytes: peak['otherPools'] ?? 0, what: 'in private pools' },
    { key: 'small', bytes: peak['smallSegments'] ?? 0, what: 'in small segments' },
    { key: 'pending', bytes: peak['pending'] ?? 0, what: 'waiting for streams' },
    { key: 'rounding', bytes: peak['rounding'] ?? 0, what: 'rounding' },
  ];
  return parts.filter((part) => part.bytes > 0);
}

export function Verdict() {
  const known = analysis.value;
  return (
    <section id="verdict" class="card" tabIndex={-1} aria-labelledby="verdict-title">
      <h2 id="verdict-title">Verdict</h2>
      {known ? <Words /> : <Progress note={analysing.value ?? { doing: 'reading', fraction: 0 }} />}
    </section>
  );
}

function Words() {
  const known = analysis.value!;
  const peak = known.json['peak'] as Record<string, number>;
  const warnings = known.json['warnings'] as { code: string; message: string }[];
  const [headline, ...details] = known.oom.length > 0 ? known.oom : [known.peakHeadline.replace(/:$/, '.')];
  return (
    <>
      {warnings.map((warning) => (
        <p class="warning" key={warning.code}>
          <strong>Warning:</strong> {warning.message}
        </p>
      ))}
      <p class={`headline ${known.oom.length > 0 ? 'bad' : ''}`} data-testid="headline">
        {headline}
      </p>
      {details.map((line) => (
        <p key={line}>{line}</p>
      ))}
      {known.oom.length > 0 && <p class="peak-line">{known.peakHeadline.replace(/:$/, '.')}</p>}
      {peak['reserved']! > 0 && <Bar parts={partsOf(peak)} whole={peak['reserved']!} />}
      <table class="losses" aria-label="What was lost at the peak">
        <tbody>
          {known.losses.map(([bytes, share, what]) => (
            <tr key={what}>
              <td class="right">{bytes}</td>
              <td class="right faint">{share}</td>
              <td>{what}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="faint">{known.floor}</p>
    </>
  );
}

/** As much as there is room for; the table below says it all. */
function labelFor({ what, bytes }: Part, share: number): string {
  if (share > 0.34) return `${what} ${formatBytes(bytes)}`;
  return share > 0.2 ? what : '';
}

function Bar({ parts, whole }: { parts: readonly Part[]; whole: number }) {
  return (
    <div class="bar" role="img" aria-label={parts.map((part) => `${part.what} ${formatBytes(part.bytes)}`).join(', ')}>
      {parts.map((part) => (
        <span
          key={part.key}
          class={`bar-part part-${part.key}`}
          data-bytes={part.bytes}
          title={`${part.what}: ${formatBytes(part.bytes)}`}
          style={{ flexGrow: part.bytes / whole }}
        >
          {labelFor(part, part.bytes / whole)}
        </span>
      ))}
    </div>
  );
}

// Figures of live memory: at the cursor, of the selected range, or of two runs beside each other.
import { formatBytes } from '../../src/base/bytes.ts';
import { formatCount, formatTimes } from '../../src/report/words/numbers.ts';
import type { LiveState } from '../../src/view/protocol.ts';
import type { RangeFigures } from '../../src/view/range-figures.ts';
import { main, mark, other, otherState, runLabel } from '../app/state.ts';

const FIGURES = [
  ['reserved', (state: LiveState) => state.reserved],
  ['allocated', (state: LiveState) => state.allocated],
  ['live', (state: LiveState) => state.live],
  ['reserved and free', (state: LiveState) => state.reserved - state.allocated],
] as const;

export function Figures({ state }: { state: LiveState }) {
  const beside = otherState.value;
  if (other.value && beside) return <Difference state={state} beside={beside} />;
  if (state.range) return <RangeList range={state.range} />;
  const marked = mark.value;
  return (
    <dl class="figure-list">
      {FIGURES.map(([name, pick]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd data-bytes={pick(state)}>{formatBytes(pick(state))}</dd>
          {marked && <dd class="faint">{signed(pick(state) - pick(marked))} since the mark</dd>}
        </div>
      ))}
      <div>
        <dt>allocations</dt>
        <dd>{formatCount(state.liveCount)}</dd>
        {marked && <dd class="faint">mark at event {formatCount(marked.event)}</dd>}
      </div>
    </dl>
  );
}

function RangeList({ range }: { range: RangeFigures }) {
  const figures = [
    ['allocated in the range', range.allocatedBytes, formatBytes, formatTimes(range.allocations, 'allocation', 'allocations')],
    ['of that still live at its end', range.leftBytes, formatBytes, formatTimes(range.left, 'allocation', 'allocations')],
    ['live memory grew by', range.liveGrowth, signed, ''],
    ['reserved memory grew by', range.reservedGrowth, signed, ''],
    ['peak of live memory', range.peakLive, formatBytes, ''],
    ['peak of reserved memory', range.peakReserved, formatBytes, ''],
  ] as const;
  return (
    <dl class="figure-list" data-testid="range-figures">
      {figures.map(([name, bytes, format, more]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd data-bytes={bytes}>{format(bytes)}</dd>
          {more && <dd class="faint">{more}</dd>}
        </div>
      ))}
    </dl>
  );
}

function Difference({ state, beside }: { state: LiveState; beside: LiveState }) {
  const second = other.value!;
  return (
    <table class="figures" aria-label="Difference at the cursor" data-testid="difference">
      <thead>
        <tr>
          <td />
          {FIGURES.map(([name]) => (
            <th key={name} scope="col" class="right">
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        <FigureRow name={`A  ${runLabel(main.value!)}`} values={FIGURES.map(([, pick]) => pick(state))} />
        <FigureRow
          name={`B  ${second.source === main.value?.source ? runLabel(second) : second.source.name}`}
          values={FIGURES.map(([, pick]) => pick(beside))}
        />
        <FigureRow name="B - A" values={FIGURES.map(([, pick]) => pick(beside) - pick(state))} isDifference />
      </tbody>
    </table>
  );
}

function FigureRow({ name, values, isDifference }: { name: string; values: readonly number[]; isDifference?: boolean }) {
  return (
    <tr class={isDifference ? 'difference' : ''}>
      <th scope="row">{name}</th>
      {values.map((value, index) => (
        <td class="right" key={FIGURES[index]![0]} data-bytes={value}>
          {isDifference ? signed(value) : formatBytes(value)}
        </td>
      ))}
    </tr>
  );
}

function signed(bytes: number): string {
  return bytes > 0 ? `+${formatBytes(bytes)}` : formatBytes(bytes);
}

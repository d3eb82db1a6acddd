// Live memory at the cursor, or what a range has left: figures, tables, the flame graph, and the selected block.
import { formatBytes } from '../../src/base/bytes.ts';
import { formatCount } from '../../src/report/words/numbers.ts';
import { RECORD_STACKS } from '../../src/report/words/shell.ts';
import { formatAge } from '../../src/view/ages.ts';
import type { LiveState } from '../../src/view/protocol.ts';
import { formatTime } from '../../src/view/ticks.ts';
import { clearSelection } from '../app/selecting.ts';
import { block, lanes, main, mainState, searchResult, selection, since } from '../app/state.ts';
import { CopyLine } from './copy-line.tsx';
import { Flame } from './flame.tsx';
import { Figures } from './live-figures.tsx';
import { LiveTable } from './live-table.tsx';

export function LivePanel() {
  const state = mainState.value;
  const lane = main.value;
  if (!state || !lane) return null;
  return (
    <section id="live" class="card" tabIndex={-1} aria-labelledby="live-title">
      <div class="card-head">
        <h2 id="live-title">{since.value ? 'Allocated in the range and still live at its end' : 'Live at the cursor'}</h2>
        <Where state={state} />
      </div>
      <Figures state={state} />
      <div class={`live-grid ${lane.gpu.hasStacks ? '' : 'one'}`}>
        <LiveTable state={state} />
        {lane.gpu.hasStacks && <Flame />}
      </div>
      {!lane.gpu.hasStacks && <NoStacks />}
      {block.value && <BlockCard />}
    </section>
  );
}

function Where({ state }: { state: LiveState }) {
  const { node, tail, site } = selection.value;
  const hasFilter = node !== undefined || tail || site !== undefined || since.value || block.value || searchResult.value;
  const from = state.range ? `events ${formatCount(state.range.first)} to ` : 'event ';
  return (
    <div class="where">
      <span aria-live="polite" data-testid="cursor">
        {from}
        {formatCount(state.event)}
        {main.value && main.value.gpu.durationUs > 0 && `, ${formatTime(state.timeUs, 100)}`}: {state.what}
      </span>
      {hasFilter && (
        <button type="button" class="small" onClick={clearSelection}>
          Clear selection
        </button>
      )}
    </div>
  );
}

/** Once for the page, instead of in every row. */
function NoStacks() {
  return (
    <div class="no-stacks" data-testid="no-stacks">
      <p>
        This recording has no call stacks, so it cannot say which lines of code hold the memory. Recordings with them, and a flame graph,
        come from either of these:
      </p>
      {RECORD_STACKS.map((line) => (
        <CopyLine key={line} line={line} />
      ))}
    </div>
  );
}

function BlockCard() {
  const info = block.value!;
  return (
    <div class="block-card" data-testid="block">
      <div>
        <strong>{formatBytes(info.requested)}</strong> at <code>{info.address}</code>, stream {info.stream}; allocated at event{' '}
        {formatCount(info.start.event)},{' '}
        {info.end ? `freed at event ${formatCount(info.end.event)} after ${formatAge(info.end.timeUs - info.start.timeUs)}` : 'never freed'}
        {info.size > info.requested && `; ${formatBytes(info.size)} given out`}
        {lanes.value.length > 1 && ' (A)'}
      </div>
      {info.notes.length > 0 && <div data-testid="notes">Named by the program: {info.notes.join(', ')}</div>}
      {info.frames.length > 0 && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, with keys too
        <ol class="frames" tabIndex={0} aria-label="Call stack of the block">
          {info.frames.map((frame, depth) => (
            <li key={depth}>{frame}</li>
          ))}
        </ol>
      )}
    </div>
  );
}

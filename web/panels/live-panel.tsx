// Live memory at the cursor: figures, a table by call site or block, and the flame graph; with two lanes, the difference.

import { useEffect, useState } from 'preact/hooks';
import { formatBytes } from '../../src/base/bytes.ts';
import { formatCount } from '../../src/report/words/numbers.ts';
import { noteWords } from '../../src/trace/notes.ts';
import type { LiveRow, LiveState } from '../../src/view/protocol.ts';
import { formatTime } from '../../src/view/ticks.ts';
import { clearSelection, selectBlock } from '../app/selecting.ts';
import { block, lanes, main, mainState, mark, other, otherState, runLabel, searchResult, selection, since } from '../app/state.ts';
import { Flame } from './flame.tsx';
import { type Column, Table } from './table.tsx';

/** More rows would make scrubbing slow. */
const MOST_ROWS = 100;

type Site = LiveState['sites'][number];

export function LivePanel() {
  const state = mainState.value;
  if (!state) return null;
  return (
    <section id="live" class="card" tabIndex={-1} aria-labelledby="live-title">
      <div class="card-head">
        <h2 id="live-title">{since.value ? 'Allocated in the range and still live at its end' : 'Live at the cursor'}</h2>
        <Where state={state} />
      </div>
      <Figures state={state} />
      <div class={`live-grid ${main.value?.gpu.hasStacks ? '' : 'one'}`}>
        <LiveTable state={state} />
        {main.value?.gpu.hasStacks && <Flame />}
      </div>
      {block.value && <BlockCard />}
    </section>
  );
}

function Where({ state }: { state: LiveState }) {
  const hasFilter =
    selection.value.node !== undefined || selection.value.site !== undefined || since.value || block.value || searchResult.value;
  return (
    <div class="where">
      <span aria-live="polite" data-testid="cursor">
        event {formatCount(state.event)}
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

const FIGURES = [
  ['reserved', (state: LiveState) => state.reserved],
  ['allocated', (state: LiveState) => state.allocated],
  ['live', (state: LiveState) => state.live],
  ['reserved and free', (state: LiveState) => state.reserved - state.allocated],
] as const;

function Figures({ state }: { state: LiveState }) {
  const beside = otherState.value;
  const marked = mark.value;
  if (other.value && beside) {
    return (
      <table class="figures" aria-label="Difference at the cursor" data-testid="difference">
        <thead>
          <tr>
            <th />
            {FIGURES.map(([name]) => (
              <th key={name} class="right">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <FigureRow name={`A  ${runLabel(main.value!)}`} values={FIGURES.map(([, pick]) => pick(state))} />
          <FigureRow
            name={`B  ${other.value.source === main.value?.source ? runLabel(other.value) : other.value.source.name}`}
            values={FIGURES.map(([, pick]) => pick(beside))}
          />
          <FigureRow name="B - A" values={FIGURES.map(([, pick]) => pick(beside) - pick(state))} isDifference />
        </tbody>
      </table>
    );
  }
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
        <dt>{since.value ? 'allocations left' : 'allocations'}</dt>
        <dd>{formatCount(state.liveCount)}</dd>
        {marked && <dd class="faint">mark at event {formatCount(marked.event)}</dd>}
      </div>
    </dl>
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

const SITE_COLUMNS: readonly Column<Site>[] = [
  { title: 'bytes', align: 'right', value: (row) => row.bytes, cell: (row) => formatBytes(row.bytes) },
  { title: 'blocks', align: 'right', value: (row) => row.count, cell: (row) => formatCount(row.count) },
  { title: 'call site', value: (row) => row.site, cell: (row) => <span class="site">{row.site}</span> },
];

const BLOCK_COLUMNS: readonly Column<LiveRow>[] = [
  { title: 'bytes', align: 'right', value: (row) => row.requested, cell: (row) => formatBytes(row.requested) },
  { title: 'age', align: 'right', value: (row) => row.ageUs, cell: (row) => formatTime(row.ageUs) },
  { title: 'stream', align: 'right', value: (row) => row.stream, cell: (row) => row.stream },
  { title: 'address', value: (row) => row.address, cell: (row) => <code>{row.address}</code> },
  {
    title: 'call site',
    value: (row) => row.site,
    cell: (row) => (
      <span class="site">
        {row.site}
        {noteWords(row.notes)}
      </span>
    ),
  },
];

type Tab = 'sites' | 'blocks' | 'found';

function LiveTable({ state }: { state: LiveState }) {
  const found = searchResult.value;
  const hasStacks = main.value?.gpu.hasStacks ?? false;
  const [chosen, setTab] = useState<Tab | undefined>(undefined);
  useEffect(() => setTab(undefined), [found]);
  const shown: Tab = chosen ?? (found ? 'found' : hasStacks ? 'sites' : 'blocks');
  const pick = (row: LiveRow) => void selectBlock(row.allocation, shown === 'found');
  return (
    <div class="live-table">
      <div class="panel-bar" role="tablist" aria-label="Live memory">
        <TabButton name="By call site" isOn={shown === 'sites'} onClick={() => setTab('sites')} />
        <TabButton name="Blocks" isOn={shown === 'blocks'} onClick={() => setTab('blocks')} />
        {found && <TabButton name={`Found (${formatCount(found.total)})`} isOn={shown === 'found'} onClick={() => setTab('found')} />}
        <span class="faint tab-note">{noteFor(shown, state)}</span>
      </div>
      <div class="table-scroll">
        {shown === 'sites' ? (
          <Table
            label="Live memory by call site"
            columns={SITE_COLUMNS}
            rows={state.sites.slice(0, MOST_ROWS)}
            keyOf={(row) => row.site}
            rowClass={(row) => (selection.value.site === row.site ? 'chosen' : '')}
            onPick={(row) => {
              selection.value = selection.value.site === row.site ? {} : { site: row.site };
            }}
          />
        ) : (
          <Table
            label={shown === 'blocks' ? 'Live blocks' : 'Blocks found'}
            columns={BLOCK_COLUMNS}
            rows={(shown === 'found' ? (found?.blocks ?? []) : state.rows).slice(0, MOST_ROWS)}
            keyOf={(row) => row.allocation}
            rowClass={(row) => (block.value?.allocation === row.allocation ? 'chosen' : '')}
            onPick={pick}
          />
        )}
      </div>
    </div>
  );
}

function noteFor(tab: Tab, state: LiveState): string {
  const count = tab === 'sites' ? state.sites.length : tab === 'blocks' ? state.liveCount : (searchResult.value?.total ?? 0);
  return count > MOST_ROWS ? `the ${tab === 'found' ? 'first' : 'largest'} ${MOST_ROWS} of ${formatCount(count)}` : '';
}

function TabButton({ name, isOn, onClick }: { name: string; isOn: boolean; onClick: () => void }) {
  return (
    <button type="button" role="tab" aria-selected={isOn} class={isOn ? 'tab on' : 'tab'} onClick={onClick}>
      {name}
    </button>
  );
}

function BlockCard() {
  const info = block.value!;
  return (
    <div class="block-card" data-testid="block">
      <div>
        <strong>{formatBytes(info.requested)}</strong> at <code>{info.address}</code>, stream {info.stream}; allocated at event{' '}
        {formatCount(info.start.event)},{' '}
        {info.end
          ? `freed at event ${formatCount(info.end.event)} after ${formatTime(info.end.timeUs - info.start.timeUs)}`
          : 'never freed'}
        {info.size > info.requested && `; ${formatBytes(info.size)} given out`}
        {lanes.value.length > 1 && ' (A)'}
      </div>
      {info.notes.length > 0 && <div data-testid="notes">Named by the program: {info.notes.join(', ')}</div>}
      {info.frames.length > 0 && (
        <ol class="frames">
          {info.frames.map((frame, depth) => (
            <li key={depth}>{frame}</li>
          ))}
        </ol>
      )}
    </div>
  );
}

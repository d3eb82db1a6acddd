// Live memory as tables: by call site, by block, and what a search has found. Without stacks, category and size name the blocks.
import { useEffect, useState } from 'preact/hooks';
import { formatBytes } from '../../src/base/bytes.ts';
import { CATEGORY_TITLES } from '../../src/report/words/categories.ts';
import { formatCount, formatTimes } from '../../src/report/words/numbers.ts';
import { noteWords } from '../../src/trace/notes.ts';
import { formatAge } from '../../src/view/ages.ts';
import type { LiveRow, LiveState } from '../../src/view/protocol.ts';
import { moveToMoment, selectBlock } from '../app/selecting.ts';
import { block, main, searchResult, selection } from '../app/state.ts';
import { type Column, Table } from './table.tsx';
import { type Tab, TabList, TabPanel } from './tabs.tsx';

/** More rows would make scrubbing slow. */
const MOST_ROWS = 100;
/** Moments that a search has found, beside the blocks. */
const MOST_MOMENTS = 20;

type Site = LiveState['sites'][number];
type TabName = 'sites' | 'blocks' | 'found';

export function LiveTable({ state }: { state: LiveState }) {
  const found = searchResult.value;
  const hasStacks = main.value?.gpu.hasStacks ?? false;
  const [chosen, setTab] = useState<TabName | undefined>(undefined);
  useEffect(() => setTab(undefined), [found]);
  const shown: TabName = chosen ?? (found ? 'found' : hasStacks ? 'sites' : 'blocks');
  const count = found ? found.total + found.moments.length : 0;
  const tabs: Tab<TabName>[] = [
    { name: 'sites', title: hasStacks ? 'By call site' : 'By category and size' },
    { name: 'blocks', title: 'Blocks' },
    ...(found ? [{ name: 'found', title: `Found (${formatCount(count)})` } as const] : []),
  ];
  return (
    <div class="live-table">
      <TabList<TabName>
        id="live"
        label="Live memory"
        tabs={tabs}
        shown={shown}
        onShow={(name) => setTab(name)}
        note={noteFor(shown, state)}
      />
      <TabPanel id="live" shown={shown}>
        {shown === 'sites' && <Sites rows={state.sites} hasStacks={hasStacks} />}
        {shown === 'blocks' && <Blocks label="Live blocks" rows={state.rows} columns={blockColumns(hasStacks, ageColumn(state))} />}
        {shown === 'found' && found && (
          <>
            <FoundMoments />
            {count === 0 && <p>Nothing found. Searched: {found.searched}.</p>}
            {found.blocks.length > 0 && (
              <Blocks label="Blocks found" rows={found.blocks} columns={blockColumns(hasStacks, ...FOUND_COLUMNS)} isFocused />
            )}
          </>
        )}
      </TabPanel>
    </div>
  );
}

function Sites({ rows, hasStacks }: { rows: readonly Site[]; hasStacks: boolean }) {
  const columns: Column<Site>[] = [
    { title: 'bytes', align: 'right', value: (row) => row.bytes, cell: (row) => formatBytes(row.bytes) },
    { title: 'blocks', align: 'right', value: (row) => row.count, cell: (row) => formatCount(row.count) },
    {
      title: hasStacks ? 'call site' : 'category and size',
      value: (row) => row.site,
      cell: (row) => (
        <span class="site" title={row.site}>
          {row.site}
        </span>
      ),
    },
  ];
  return (
    <Table
      label={hasStacks ? 'Live memory by call site' : 'Live memory by category and size'}
      columns={columns}
      rows={rows.slice(0, MOST_ROWS)}
      keyOf={(row) => row.site}
      rowClass={(row) => (selection.value.site === row.site ? 'chosen' : '')}
      onPick={(row) => {
        selection.value = selection.value.site === row.site ? {} : { site: row.site };
      }}
    />
  );
}

interface BlocksProps {
  readonly label: string;
  readonly rows: readonly LiveRow[];
  readonly columns: readonly Column<LiveRow>[];
  /** Choosing a row moves the cursor to the block. */
  readonly isFocused?: boolean;
}

function Blocks({ label, rows, columns, isFocused = false }: BlocksProps) {
  return (
    <Table
      label={label}
      columns={columns}
      rows={rows.slice(0, MOST_ROWS)}
      keyOf={(row) => row.allocation}
      rowClass={(row) => (block.value?.allocation === row.allocation ? 'chosen' : '')}
      onPick={(row) => void selectBlock(row.allocation, isFocused)}
    />
  );
}

function blockColumns(hasStacks: boolean, ...times: readonly Column<LiveRow>[]): Column<LiveRow>[] {
  return [
    { title: 'bytes', align: 'right', value: (row) => row.requested, cell: (row) => formatBytes(row.requested) },
    ...times,
    { title: 'stream', align: 'right', value: (row) => row.stream, cell: (row) => row.stream },
    { title: 'address', value: (row) => row.address, cell: (row) => <code>{row.address}</code> },
    {
      title: hasStacks ? 'call site' : 'category',
      value: (row) => (hasStacks ? row.site : CATEGORY_TITLES[row.category]),
      cell: (row) => <BlockSite row={row} hasStacks={hasStacks} />,
    },
  ];
}

/** The line of code with what the memory holds; without stacks, what it holds. */
function BlockSite({ row, hasStacks }: { row: LiveRow; hasStacks: boolean }) {
  const category = CATEGORY_TITLES[row.category];
  return (
    <span class="site" title={hasStacks ? row.site : category}>
      {hasStacks ? row.site : category}
      {noteWords(row.notes)}
      {hasStacks && row.category !== 'unknown' && <span class="tag">{category}</span>}
    </span>
  );
}

/** Recordings without a clock have ages in events. */
function ageColumn(state: LiveState): Column<LiveRow> {
  const hasTimes = (main.value?.gpu.durationUs ?? 0) > 0;
  return {
    title: 'age',
    align: 'right',
    value: (row) => state.event - row.event,
    cell: (row) => {
      if (row.event < 0) return 'older';
      return hasTimes ? formatAge(row.ageUs) : formatTimes(state.event - row.event, 'event', 'events');
    },
  };
}

/** What was found lives at many moments: when it began and how long it lived tells more than an age. */
const FOUND_COLUMNS: readonly Column<LiveRow>[] = [
  { title: 'event', align: 'right', value: (row) => row.event, cell: (row) => (row.event < 0 ? 'before' : formatCount(row.event)) },
  {
    title: 'lived',
    align: 'right',
    value: (row) => row.livedUs ?? Number.POSITIVE_INFINITY,
    cell: (row) => (row.livedUs === undefined ? 'to the end' : formatAge(row.livedUs)),
  },
];

function FoundMoments() {
  const moments = searchResult.value?.moments ?? [];
  return (
    <ul class="moments" aria-label="Moments found">
      {moments.slice(0, MOST_MOMENTS).map(({ event, timeUs, what }) => (
        <li key={`${event} ${what}`}>
          <button type="button" class="link" onClick={() => moveToMoment({ event, timeUs })}>
            event {formatCount(event)}
          </button>
          : {what}
        </li>
      ))}
      {moments.length > MOST_MOMENTS && <li class="faint">and {formatCount(moments.length - MOST_MOMENTS)} more</li>}
    </ul>
  );
}

function noteFor(tab: TabName, state: LiveState): string {
  const count = tab === 'sites' ? state.sites.length : tab === 'blocks' ? state.liveCount : (searchResult.value?.total ?? 0);
  return count > MOST_ROWS ? `the ${tab === 'found' ? 'first' : 'largest'} ${MOST_ROWS} of ${formatCount(count)}` : '';
}

// Three lists below the strips: the holes by size, the blocks that pin the chosen one, and the stack of the request.
import { formatBytes } from '../../src/base/bytes.ts';
import { CATEGORY_TITLES } from '../../src/report/words/categories.ts';
import { formatCount } from '../../src/report/words/numbers.ts';
import { RECORD_STACKS } from '../../src/report/words/shell.ts';
import { noteWords } from '../../src/trace/notes.ts';
import { formatAge } from '../../src/view/ages.ts';
import { type Strip, useOfRun } from '../../src/view/fit-strip.ts';
import type { Pin } from '../../src/view/fit-view.ts';
import { holeSentence, useWords } from '../../src/view/fit-words.ts';
import { selectBlock } from '../app/selecting.ts';
import { block, main } from '../app/state.ts';
import { CopyLine } from './copy-line.tsx';
import { hole, holeInfo, misfit, pickedHole, restingLanes } from './fit-state.ts';
import { type Column, Table } from './table.tsx';

/** More rows would make scrubbing slow. */
const MOST_ROWS = 40;

export function FitHoles() {
  return (
    <div class="fit-grid">
      <Holes />
      <Pins />
      <Stack />
    </div>
  );
}

interface HoleRow {
  readonly run: number;
  readonly address: number;
  readonly bytes: number;
  readonly use: string;
  readonly segment: number;
}

const HOLE_COLUMNS: readonly Column<HoleRow>[] = [
  { title: 'bytes', align: 'right', value: (row) => row.bytes, cell: (row) => formatBytes(row.bytes) },
  { title: 'segment', align: 'right', value: (row) => row.segment, cell: (row) => formatBytes(row.segment) },
  { title: 'for the request', value: (row) => row.use, cell: (row) => row.use },
];

function Holes() {
  const side = hole.value?.side ?? 'recorded';
  const strip = restingLanes[side].value?.strip;
  const rows = strip ? [...strip.holes.subarray(0, MOST_ROWS)].map((run) => rowOf(strip, run)) : [];
  const count = strip?.holes.length ?? 0;
  return (
    <div class="fit-holes">
      <div class="panel-bar">
        <h3>Holes, largest first</h3>
        <span class="faint tab-note">{count > MOST_ROWS ? `${MOST_ROWS} of ${formatCount(count)}` : ''}</span>
      </div>
      <div class="table-scroll">
        <Table
          label="Holes"
          columns={HOLE_COLUMNS}
          rows={rows}
          keyOf={(row) => row.address}
          rowClass={(row) => (hole.value?.address === row.address ? 'chosen' : '')}
          onPick={(row) => {
            pickedHole.value = { side, address: row.address };
          }}
        />
      </div>
    </div>
  );
}

function rowOf(strip: Strip, run: number): HoleRow {
  return {
    run,
    address: strip.runAddress[run]!,
    bytes: strip.runSize[run]!,
    use: useWords(useOfRun(strip, run), strip.runSize[run]!, misfit.value?.bytes ?? 0),
    segment: strip.segmentSize[strip.runSegment[run]!]!,
  };
}

const SIDES = { before: 'right before', after: 'right behind' } as const;

const PIN_COLUMNS: readonly Column<Pin>[] = [
  { title: 'bytes', align: 'right', value: (row) => row.size, cell: (row) => formatBytes(row.size) },
  { title: 'age', align: 'right', value: (row) => row.ageUs, cell: ageOf },
  { title: 'freed', align: 'right', value: (row) => row.freedAfterUs ?? Number.POSITIVE_INFINITY, cell: freedOf },
  { title: 'where', value: (row) => row.side ?? '', cell: (row) => (row.side ? SIDES[row.side] : 'same segment') },
  {
    title: 'call site',
    value: (row) => row.site,
    cell: (row) => (
      <span class="site" title={row.site}>
        {row.site}
        {noteWords(row.notes)}
        {row.category !== 'unknown' && <span class="tag">{CATEGORY_TITLES[row.category]}</span>}
      </span>
    ),
  },
];

function ageOf({ event, ageUs }: Pin): string {
  if (event < 0) return 'older';
  return main.value && main.value.gpu.durationUs > 0 ? formatAge(ageUs) : `since ${formatCount(event)}`;
}

function freedOf({ isPending, freedAfterUs }: Pin): string {
  if (isPending) return 'waits for streams';
  return freedAfterUs === undefined ? 'never' : `in ${formatAge(freedAfterUs)}`;
}

function Pins() {
  const info = holeInfo.value;
  const rows = info?.pins.slice(0, MOST_ROWS) ?? [];
  return (
    <div class="fit-pins">
      <div class="panel-bar">
        <h3>What pins the hole</h3>
        <span class="faint tab-note">
          {info && info.pinCount > rows.length ? `neighbours, then the largest: ${rows.length} of ${formatCount(info.pinCount)}` : ''}
        </span>
      </div>
      <p class="fit-hole-words" data-testid="hole-words" aria-live="polite">
        {info ? holeSentence(info) : 'No hole: all reserved memory is in use.'}
      </p>
      <div class="table-scroll">
        <Table
          label="Blocks that pin the hole"
          columns={PIN_COLUMNS}
          rows={rows}
          keyOf={(row) => row.allocation}
          rowClass={(row) => (block.value?.allocation === row.allocation ? 'chosen' : '')}
          onPick={(row) => void selectBlock(row.allocation)}
        />
      </div>
    </div>
  );
}

function Stack() {
  const request = misfit.value;
  return (
    <div class="fit-stack" data-testid="fit-stack">
      <div class="panel-bar">
        <h3>{request?.kind === 'peak' ? 'Stack of the request' : 'Stack of the failed request'}</h3>
      </div>
      {request && request.frames.length > 0 && (
        <>
          <p>{request.site}</p>
          <ol class="frames">
            {request.frames.map((frame, depth) => (
              <li key={depth}>{frame}</li>
            ))}
          </ol>
        </>
      )}
      {request && request.frames.length === 0 && <NoStack />}
    </div>
  );
}

/** How to record what is missing. If there are no stacks at all, the table of live memory says it. */
function NoStack() {
  if (!main.value?.gpu.hasStacks) return <p>No stacks were recorded.</p>;
  return (
    <>
      <p>
        This request has no stack. PyTorch records none for autograd's threads, so it is probably one of a backward pass. weir record has
        them:
      </p>
      <CopyLine line={RECORD_STACKS[0]!} />
    </>
  );
}

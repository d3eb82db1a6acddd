// The what-if table: every allocator on the recorded run, the replay error, and the GPU size to try.
import { formatBytes } from '../../src/base/bytes.ts';
import type { Analysis } from '../../src/report/analysis.ts';
import { fitOf, recordedRow, type WhatIfRow } from '../../src/report/what-if.ts';
import { formatMs } from '../../src/report/words/numbers.ts';
import { isExact, replayErrorSentence } from '../../src/report/words/verdict.ts';
import {
  changeWords,
  FIT_MEANING,
  fitTitle,
  fitWords,
  limitSentence,
  PAGE_TITLES,
  unlimitedSentence,
  WHAT_IF_COLUMNS,
  WHAT_IF_TITLE,
} from '../../src/report/words/what-if.ts';
import { RECORDED } from '../../src/view/protocol.ts';
import { compareWith, comparison } from '../app/opening.ts';
import { Progress } from '../app/progress.tsx';
import { analysing, analysis, capacity, main } from '../app/state.ts';
import { CapacityField } from './capacity-field.tsx';
import { type Column, Table } from './table.tsx';
import { isAllShown, type Line, lines } from './what-if-rows.ts';

export function WhatIf() {
  const facts = analysis.value?.analysis;
  const rows = lines.value;
  const isEmpty = analysis.value?.isComplete === true && rows.length === 0;
  return (
    <section id="what-if" class="card" tabIndex={-1} aria-labelledby="what-if-title">
      <div class="card-head">
        <h2 id="what-if-title">{WHAT_IF_TITLE}</h2>
        <CapacityField />
      </div>
      {!isEmpty && (
        <div class="scroll-x">
          <Table
            label={WHAT_IF_TITLE}
            columns={columnsFor(facts)}
            rows={rows}
            keyOf={({ allocator }) => allocator}
            rowClass={(line) =>
              `${comparison() === line.allocator ? 'chosen' : line.isRecorded ? 'recorded' : ''}${line.isStale ? ' stale' : ''}`
            }
            onPick={({ allocator, isRecorded }) => void compareWith(isRecorded || comparison() === allocator ? '' : allocator)}
          />
        </div>
      )}
      <div class="below-table">
        <label class="check">
          <input
            type="checkbox"
            checked={isAllShown.value}
            onChange={(event) => {
              isAllShown.value = event.currentTarget.checked;
            }}
          />
          Show all allocators
        </label>
        {analysing.value ? (
          <Progress note={analysing.value} />
        ) : (
          <span class="faint">Choose a row to see its map beside the recorded run.</span>
        )}
      </div>
      <div class="notes">{facts && <Notes facts={facts} />}</div>
    </section>
  );
}

function Notes({ facts }: { facts: Analysis }) {
  const unlimited = unlimitedSentence(facts);
  return (
    <>
      <p class={isExact(facts.replayError) ? 'note exact' : 'note inexact'} data-testid="replay-error">
        {replayErrorSentence(facts.replayError)}
      </p>
      {unlimited && (
        <p class="note faint" data-testid="unlimited">
          {unlimited}
        </p>
      )}
    </>
  );
}

/** For sorting: rows that are still to come are last. */
const UNKNOWN = -1;

function columnsFor(facts: Analysis | undefined): Column<Line>[] {
  const known = lines.value.flatMap(({ row }) => row ?? []);
  const most = Math.max(1, ...known.map((row) => row.unlimited.peakReserved));
  const recorded = recordedRow(known);
  const figure = (
    { title, help }: { title: string; help: string },
    value: (row: WhatIfRow) => number,
    cell: Column<WhatIfRow>['cell'],
  ): Column<Line> => ({
    title,
    help,
    align: 'right',
    value: ({ row }) => (row ? value(row) : UNKNOWN),
    cell: ({ row }) => (row ? cell(row) : <span class="faint">…</span>),
  });
  const { peakReserved, change, overhead, smallestGpu, driverTime } = WHAT_IF_COLUMNS;
  const isSmallestKnown = known.length === 0 || known.some((row) => row.smallestGpu !== undefined);
  return [
    {
      title: WHAT_IF_COLUMNS.allocator.title,
      value: ({ allocator }) => allocator,
      cell: ({ allocator, isRecorded }) => (
        <>
          <span class="allocator">{allocator}</span>
          {isRecorded && <span class="tag">{RECORDED}</span>}
        </>
      ),
    },
    ...fitColumn(facts),
    ...(isSmallestKnown
      ? [
          figure(
            { title: PAGE_TITLES.smallestGpu, help: smallestGpu.meaning },
            (row) => row.smallestGpu ?? 0,
            (row) => (row.smallestGpu === undefined ? '' : formatBytes(row.smallestGpu)),
          ),
        ]
      : []),
    figure(
      { title: PAGE_TITLES.peakReserved, help: peakReserved.meaning },
      (row) => row.unlimited.peakReserved,
      ({ unlimited }) => (
        <span class="with-bar" data-bytes={unlimited.peakReserved}>
          <span class="small-bar" style={{ width: `${(100 * unlimited.peakReserved) / most}%` }} />
          <span>{formatBytes(unlimited.peakReserved)}</span>
        </span>
      ),
    ),
    figure(
      { title: change.title, help: change.meaning },
      (row) => row.unlimited.peakReserved,
      (row) => changeWords(row, recorded),
    ),
    figure(
      { title: overhead.title, help: overhead.meaning },
      (row) => row.reservedOverLive,
      (row) => row.reservedOverLive.toFixed(3),
    ),
    figure(
      { title: driverTime.title, help: driverTime.meaning },
      (row) => row.unlimited.driver.timeUs,
      (row) => formatMs(row.unlimited.driver.timeUs),
    ),
  ];
}

const FIT_LOOKS = { fits: { mark: '✓', look: 'good' }, 'may-fit': { mark: '?', look: '' }, fails: { mark: '✕', look: 'bad' } } as const;

/** Whether the run fits the GPU in question; no column if its size is unknown. */
function fitColumn(facts: Analysis | undefined): Column<Line>[] {
  // Until the facts are there, a column keeps the place if there will be one.
  const where = facts ? fitTitle(facts) : capacity.value !== undefined || main.value?.gpu.ooms.length ? '' : undefined;
  if (where === undefined) return [];
  const value = ({ row }: Line) => {
    const fit = row && fitOf(row);
    return fit ? fitWords(fit) : '';
  };
  const cell = ({ row }: Line) => {
    const fit = row && fitOf(row);
    return fit && <span class={FIT_LOOKS[fit.kind].look}>{`${FIT_LOOKS[fit.kind].mark} ${fitWords(fit)}`}</span>;
  };
  return [
    { title: `${PAGE_TITLES.fits} ${where}`.trim(), help: (facts && limitSentence(facts)) ?? FIT_MEANING, name: 'fits', value, cell },
  ];
}

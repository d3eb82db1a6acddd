// The what-if table: every allocator on the recorded run, the replay error, and the GPU size to try.
import { useState } from 'preact/hooks';
import { formatBytes, parseBytes } from '../../src/base/bytes.ts';
import type { Analysis } from '../../src/report/analysis.ts';
import { fitOf, recordedRow, type WhatIfRow } from '../../src/report/what-if.ts';
import { formatMs } from '../../src/report/words/numbers.ts';
import { isExact, replayErrorSentence } from '../../src/report/words/verdict.ts';
import { changeWords, fitTitle, fitWords, limitSentence, WHAT_IF_COLUMNS, WHAT_IF_TITLE } from '../../src/report/words/what-if.ts';
import { RECORDED } from '../../src/view/protocol.ts';
import { compareWith, comparison, tryCapacity } from '../app/opening.ts';
import { Progress } from '../app/progress.tsx';
import { analysing, analysis, capacity } from '../app/state.ts';
import { type Column, Table } from './table.tsx';

const SIZES = ['16 GiB', '24 GiB', '32 GiB', '40 GiB', '48 GiB', '80 GiB', '141 GiB'];

export function WhatIf() {
  const facts = analysis.value?.analysis;
  return (
    <section id="what-if" class="card" tabIndex={-1} aria-labelledby="what-if-title">
      <div class="card-head">
        <h2 id="what-if-title">{WHAT_IF_TITLE}</h2>
        <CapacityField />
      </div>
      {facts && (
        <>
          <div class="scroll-x">
            <Table
              label={WHAT_IF_TITLE}
              columns={columnsFor(facts)}
              rows={facts.whatIf}
              keyOf={(row) => row.allocator}
              rowClass={(row) => (comparison() === row.allocator ? 'chosen' : row.isRecorded ? 'recorded' : '')}
              onPick={(row) => void compareWith(row.isRecorded || comparison() === row.allocator ? '' : row.allocator)}
            />
          </div>
          <p class={isExact(facts.replayError) ? 'note exact' : 'note inexact'} data-testid="replay-error">
            {replayErrorSentence(facts.replayError)}
          </p>
          <p class="note faint">Choose a row to see its map beside the recorded run. Peaks are without a memory limit.</p>
        </>
      )}
      {analysing.value && <Progress note={analysing.value} />}
    </section>
  );
}

function columnsFor(facts: Analysis): Column<WhatIfRow>[] {
  const { whatIf } = facts;
  const most = Math.max(1, ...whatIf.map((row) => row.unlimited.peakReserved));
  const recorded = recordedRow(whatIf);
  return [
    {
      title: WHAT_IF_COLUMNS.allocator.title,
      value: (row) => row.allocator,
      cell: (row) => (
        <>
          {row.allocator}
          {row.isRecorded && <span class="tag">{RECORDED}</span>}
        </>
      ),
    },
    {
      title: WHAT_IF_COLUMNS.peakReserved.title,
      align: 'right',
      help: WHAT_IF_COLUMNS.peakReserved.meaning,
      value: (row) => row.unlimited.peakReserved,
      cell: ({ unlimited: { peakReserved } }) => (
        <span class="with-bar" data-bytes={peakReserved}>
          <span class="small-bar" style={{ width: `${(100 * peakReserved) / most}%` }} />
          <span>{formatBytes(peakReserved)}</span>
        </span>
      ),
    },
    {
      title: WHAT_IF_COLUMNS.change.title,
      align: 'right',
      help: WHAT_IF_COLUMNS.change.meaning,
      value: (row) => row.unlimited.peakReserved,
      cell: (row) => changeWords(row, recorded),
    },
    {
      title: WHAT_IF_COLUMNS.overhead.title,
      align: 'right',
      help: WHAT_IF_COLUMNS.overhead.meaning,
      value: (row) => row.reservedOverLive,
      cell: (row) => row.reservedOverLive.toFixed(3),
    },
    ...(whatIf.some((row) => row.smallestGpu !== undefined)
      ? [
          {
            title: WHAT_IF_COLUMNS.smallestGpu.title,
            align: 'right',
            help: WHAT_IF_COLUMNS.smallestGpu.meaning,
            value: (row: WhatIfRow) => row.smallestGpu ?? 0,
            cell: (row: WhatIfRow) => (row.smallestGpu === undefined ? '' : formatBytes(row.smallestGpu)),
          } as const,
        ]
      : []),
    ...fitColumn(facts),
    {
      title: WHAT_IF_COLUMNS.driverTime.title,
      align: 'right',
      help: WHAT_IF_COLUMNS.driverTime.meaning,
      value: (row) => row.unlimited.driver.timeUs,
      cell: (row) => formatMs(row.unlimited.driver.timeUs),
    },
  ];
}

const FIT_LOOKS = { fits: { mark: '✓', look: 'good' }, 'may-fit': { mark: '?', look: '' }, fails: { mark: '✕', look: 'bad' } } as const;

/** Whether the run fits the GPU in question; no column if its size is unknown. */
function fitColumn(facts: Analysis): Column<WhatIfRow>[] {
  const title = fitTitle(facts);
  if (title === undefined) return [];
  const words = (row: WhatIfRow) => {
    const fit = fitOf(row);
    return fit ? fitWords(fit) : '';
  };
  const cell = (row: WhatIfRow) => {
    const fit = fitOf(row);
    return fit && <span class={FIT_LOOKS[fit.kind].look}>{`${FIT_LOOKS[fit.kind].mark} ${fitWords(fit)}`}</span>;
  };
  const help = limitSentence(facts);
  return [{ title, ...(help ? { help } : {}), value: words, cell }];
}

function CapacityField() {
  const { capacity: limit, capacityOrigin: origin } = analysis.value?.analysis ?? {};
  const [text, setText] = useState<string | undefined>(undefined);
  const [isWrong, setWrong] = useState(false);
  const apply = () => {
    if (text === undefined) return;
    try {
      const bytes = text.trim() === '' ? undefined : parseBytes(text);
      if (bytes !== undefined && bytes <= 0) throw new Error('no memory');
      setWrong(false);
      setText(undefined);
      tryCapacity(bytes);
    } catch {
      setWrong(true);
    }
  };
  const shown = text ?? (limit ? formatBytes(limit) : '');
  return (
    <form
      class="capacity"
      onSubmit={(event) => {
        event.preventDefault();
        apply();
      }}
    >
      <label for="capacity">GPU memory</label>
      <input
        id="capacity"
        list="capacities"
        size={10}
        placeholder="any"
        value={shown}
        aria-invalid={isWrong}
        title={isWrong ? 'write it like 24GiB or 80GB' : 'the part that PyTorch can use; empty: as recorded'}
        onInput={(event) => setText(event.currentTarget.value)}
        onBlur={apply}
      />
      <datalist id="capacities">
        {SIZES.map((size) => (
          <option key={size} value={size} />
        ))}
      </datalist>
      <span class="faint">
        {isWrong
          ? 'write it like 24GiB'
          : capacity.value !== undefined
            ? ''
            : origin === 'inferred'
              ? 'at most, as the failures show'
              : origin === 'recorded'
                ? 'as recorded'
                : ''}
      </span>
    </form>
  );
}

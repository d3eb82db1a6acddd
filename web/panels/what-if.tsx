// The what-if table: every allocator on the recorded run, the replay error, and the GPU size that the user asks about.
import { useState } from 'preact/hooks';
import { formatBytes, parseBytes } from '../../src/base/bytes.ts';
import { RECORDED } from '../../src/view/protocol.ts';
import type { WhatIfView } from '../../src/view/words.ts';
import { compareWith, comparison, tryCapacity } from '../app/opening.ts';
import { Progress } from '../app/progress.tsx';
import { analysing, analysis, capacity } from '../app/state.ts';
import { type Column, Table } from './table.tsx';

const SIZES = ['16 GiB', '24 GiB', '32 GiB', '40 GiB', '48 GiB', '80 GiB', '141 GiB'];

export function WhatIf() {
  const known = analysis.value;
  return (
    <section id="what-if" class="card" tabIndex={-1} aria-labelledby="what-if-title">
      <div class="card-head">
        <h2 id="what-if-title">What each allocator would have needed</h2>
        <CapacityField />
      </div>
      {known && (
        <>
          <div class="scroll-x">
            <Table
              label="What each allocator would have needed"
              columns={columnsFor(
                known.rows.some((row) => row.smallestGpu !== undefined),
                known.capacity,
              )}
              rows={known.rows}
              keyOf={(row) => row.allocator}
              rowClass={(row) => (comparison() === row.allocator ? 'chosen' : row.isRecorded ? 'recorded' : '')}
              onPick={(row) => void compareWith(row.isRecorded || comparison() === row.allocator ? '' : row.allocator)}
            />
          </div>
          <p class={known.isExact ? 'note exact' : 'note inexact'} data-testid="replay-error">
            {known.replayError}
          </p>
          <p class="note faint">Choose a row to see its map beside the recorded run. Peaks are where memory is no limit.</p>
        </>
      )}
      {analysing.value && <Progress note={analysing.value} />}
    </section>
  );
}

function columnsFor(hasSmallest: boolean, gpuSize: string | undefined): Column<WhatIfView>[] {
  const most = Math.max(1, ...(analysis.value?.rows.map((row) => row.peakReserved) ?? []));
  return [
    {
      title: 'allocator',
      value: (row) => row.allocator,
      cell: (row) => (
        <>
          {row.allocator}
          {row.isRecorded && <span class="tag">{RECORDED}</span>}
        </>
      ),
    },
    {
      title: 'peak reserved',
      align: 'right',
      value: (row) => row.peakReserved,
      cell: (row) => (
        <span class="with-bar" data-bytes={row.peakReserved}>
          <span class="small-bar" style={{ width: `${(100 * row.peakReserved) / most}%` }} />
          <span>{formatBytes(row.peakReserved)}</span>
        </span>
      ),
    },
    { title: 'change', align: 'right', value: (row) => row.peakReserved, cell: (row) => row.change },
    {
      title: '/ live',
      align: 'right',
      help: 'peak reserved over peak live memory, had every request been served: 1 is the floor',
      value: (row) => row.reservedOverLive,
      cell: (row) => row.reservedOverLive.toFixed(3),
    },
    ...(hasSmallest
      ? [
          {
            title: 'runs on',
            align: 'right',
            help: 'the least memory on which no request fails',
            value: (row: WhatIfView) => row.smallestGpu ?? 0,
            cell: (row: WhatIfView) => (row.smallestGpu === undefined ? '' : formatBytes(row.smallestGpu)),
          } as const,
        ]
      : []),
    ...(gpuSize !== undefined
      ? [
          {
            title: `in ${gpuSize}`,
            help: 'what the job could have; where that is a range, from what it was granted to what it was not refused, "may fit" depends on it',
            value: (row: WhatIfView) => row.fit,
            cell: (row: WhatIfView) => (
              <span class={row.fits === false ? 'bad' : row.mayFit ? '' : 'good'}>
                {`${row.fits === false ? '✕' : row.mayFit ? '?' : '✓'} ${row.fit}`}
              </span>
            ),
          } as const,
        ]
      : []),
    { title: 'driver time', align: 'right', value: (row) => row.driverUs, cell: (row) => `${(row.driverUs / 1e3).toFixed(1)} ms` },
  ];
}

function CapacityField() {
  const limit = analysis.value?.json['capacity'] as number | null | undefined;
  const origin = analysis.value?.json['capacityOrigin'];
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
        title={isWrong ? 'write it like 24GiB or 80GB' : 'what PyTorch can get; empty is what the recording says'}
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
              ? 'at most, as its failures show'
              : origin === 'recorded'
                ? 'as recorded'
                : ''}
      </span>
    </form>
  );
}

// Will it fit? Sliders for the values and the GPU, the largest value on each allocator, and the lines whose memory grows.
import { useEffect, useState } from 'preact/hooks';
import { formatBytes, GIB } from '../../src/base/bytes.ts';
import { largestWords, peakWords, pointWords } from '../../src/report/words/fit.ts';
import { formatCount } from '../../src/report/words/numbers.ts';
import type { ValueChoice, ValueInfo, ValueTable } from '../../src/view/value-table.ts';
import { tryCapacity } from '../app/opening.ts';
import { Progress } from '../app/progress.tsx';
import { capacity, main } from '../app/state.ts';
import { type Column, Table } from '../panels/table.tsx';
import { choosePoint, searching, table, valuesOf } from './value-state.ts';

const GPU_GIB = [4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 180, 192, 288];
/** A run is opened once the slider rests. */
const REST_MS = 250;

export function ValuePanel() {
  const known = valuesOf(main.value?.source);
  if (!known) return null;
  return (
    <section id="values" class="card" tabIndex={-1} aria-labelledby="values-title">
      <h2 id="values-title">Will it fit?</h2>
      <div class="value-sliders">
        {known.names.map((name, parameter) => (
          <ValueSlider key={name} known={known} parameter={parameter} />
        ))}
        <GpuSlider known={known} />
      </div>
      <p class="faint">
        The run of {pointWords(known.point)} below is made from runs of {known.tried.map(pointWords).join(', ')}. Blocks whose size is not
        settled have their largest size in it.
      </p>
      {table.value && <Answer answer={table.value} known={known} />}
      {searching.value && <Progress note={searching.value} />}
    </section>
  );
}

function ValueSlider({ known, parameter }: { known: ValueInfo; parameter: number }) {
  const open = known.point[parameter]!;
  const [chosen, setChosen] = useState(open);
  useEffect(() => setChosen(open), [open]);
  useEffect(() => {
    if (chosen === open) return;
    const timer = setTimeout(() => choosePoint(known.point.map((value, index) => (index === parameter ? chosen : value))), REST_MS);
    return () => clearTimeout(timer);
  }, [chosen, open]);
  const step = parameter === 0 ? known.multiple : 1;
  const most = Math.max(parameter === 0 ? (table.value?.most ?? 0) : 0, known.most[parameter]!, open);
  const choose = (text: string) => {
    const value = Math.round(Number(text) / step) * step;
    if (Number.isFinite(value) && value >= step) setChosen(Math.min(value, 2 ** 24));
  };
  const name = known.names[parameter]!;
  return (
    <label class="value-slider">
      <span>{name}</span>
      <input
        type="range"
        aria-label={name}
        min={step}
        max={Math.ceil(most / step) * step}
        step={step}
        value={chosen}
        onInput={(event) => choose(event.currentTarget.value)}
      />
      <input
        type="number"
        aria-label={`${name}, as a number`}
        min={step}
        step={step}
        value={chosen}
        onChange={(event) => choose(event.currentTarget.value)}
      />
    </label>
  );
}

function GpuSlider({ known }: { known: ValueInfo }) {
  const bytes = capacity.value ?? known.gpuBytes;
  const sizes = [...new Set([...GPU_GIB.map((size) => size * GIB), known.gpuBytes, bytes])].sort((a, b) => a - b);
  const [place, setPlace] = useState(sizes.indexOf(bytes));
  useEffect(() => setPlace(sizes.indexOf(bytes)), [bytes]);
  useEffect(() => {
    const chosen = sizes[place];
    if (chosen === undefined || chosen === bytes) return;
    const timer = setTimeout(() => tryCapacity(chosen), REST_MS);
    return () => clearTimeout(timer);
  }, [place, bytes]);
  const shown = formatBytes(sizes[place] ?? bytes);
  return (
    <label class="value-slider">
      <span>GPU memory</span>
      <input
        type="range"
        aria-label="GPU memory"
        aria-valuetext={shown}
        min={0}
        max={sizes.length - 1}
        step={1}
        value={place}
        onInput={(event) => setPlace(Number(event.currentTarget.value))}
      />
      <output>{shown}</output>
    </label>
  );
}

function Answer({ answer, known }: { answer: ValueTable; known: ValueInfo }) {
  const value = known.point[0]!;
  const isStale = answer.point.join() !== known.point.join() || answer.gpuBytes !== (capacity.value ?? known.gpuBytes);
  const columns: Column<ValueChoice>[] = [
    { title: 'allocator', cell: ({ allocator }) => allocator },
    { title: `largest ${known.names[0]} that fits`, align: 'right', cell: (row) => <strong>{largestWords(row)}</strong> },
    { title: `${known.names[0]} ${formatCount(value)}`, cell: (row) => fitMark(row, value) },
    { title: 'peak reserved with unlimited memory', align: 'right', cell: ({ peak }) => (peak ? peakWords(peak) : '') },
  ];
  return (
    <div class={isStale ? 'values-answer stale' : 'values-answer'} data-testid="values-answer" aria-busy={isStale}>
      <div class="scroll-x">
        <Table label={`The largest ${known.names[0]}`} columns={columns} rows={answer.rows} keyOf={({ allocator }) => allocator} />
      </div>
      <div class="scroll-x">
        <p>{answer.growthTitle}.</p>
        <Table
          label="Lines whose memory grows"
          columns={[
            { title: 'adds', align: 'right', cell: ({ adds }) => formatBytes(adds) },
            { title: 'live at the peak', align: 'right', cell: ({ bytes }) => formatBytes(bytes) },
            { title: 'grows with', cell: ({ grows }) => grows },
            { title: 'requested at', cell: ({ label }) => label },
          ]}
          rows={answer.sites}
          keyOf={({ label }) => label}
        />
      </div>
      <div class="values-notes">
        {answer.sentences.map((sentence) => (
          <p key={sentence} class="note faint">
            {sentence}
          </p>
        ))}
      </div>
    </div>
  );
}

function fitMark({ sure, possible }: ValueChoice, value: number) {
  if (value <= sure.value) return <span class="good">✓ fits</span>;
  return value > possible.value && possible.isBounded ? <span class="bad">✕ out of memory</span> : <span>? may fit</span>;
}

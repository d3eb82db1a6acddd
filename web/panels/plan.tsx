// The plan for the step that the run repeats: its layout as offset by time, a lane of copies for each direction, and what
// lower limits cost. Hidden if there is no plan.
import { effect } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { formatBytes } from '../../src/base/bytes.ts';
import type { SwapFacts } from '../../src/report/plan.ts';
import { CURVE_COLUMNS, overheadWords, planRows } from '../../src/report/words/plan.ts';
import { shellWord } from '../../src/report/words/shell.ts';
import { boundsOf, stepOn } from '../../src/view/block-classes.ts';
import { colourOf, css, DARK_MAP, LIGHT_MAP } from '../../src/view/colours.ts';
import type { PlanView } from '../../src/view/plan-view.ts';
import { axisTicks, byteTicks } from '../../src/view/ticks.ts';
import { main, plan } from '../app/state.ts';
import { isDark, isPrinting, PAPER_WIDTH, themeColour } from '../app/theme.ts';
import { prepareCanvas } from '../tracks/canvas.ts';
import { CopyLine } from './copy-line.tsx';

const LEFT = 64;
const TICKS = 22;
const LAYOUT = 220;
const LANE = 18;

export function Plan() {
  const known = plan.value;
  if (!known) return null;
  const name = main.value?.source.name ?? 'FILE';
  return (
    <section id="plan" class="card" tabIndex={-1} aria-labelledby="plan-title">
      <h2 id="plan-title">A plan for the step this run repeats</h2>
      <div class="plan-grid">
        <table class="plan-facts" aria-label="The plan">
          <tbody>
            {planRows(known.facts).map(({ name: what, words }) => (
              <tr key={what}>
                <th scope="row">{what}</th>
                <td>{words}</td>
              </tr>
            ))}
          </tbody>
        </table>
        <Picture known={known} />
        {known.facts.kind === 'swaps' && <Curve curve={known.facts.plan.curve} />}
      </div>
      {!main.value?.source.info?.values && <CopyLine line={`weir plan ${shellWord(name)} -o step.plan`} />}
    </section>
  );
}

function Picture({ known }: { known: PlanView }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const element = canvas.current!;
    const redraw = () => {
      void isDark.value;
      if (plan.value) draw(element, plan.value);
    };
    const stop = effect(redraw);
    const observer = new ResizeObserver(redraw);
    observer.observe(element.parentElement!);
    return () => {
      stop();
      observer.disconnect();
    };
  }, []);
  const label = `Layout of a step: ${known.layout.size.length} rectangles in ${formatBytes(known.layout.height)}`;
  return (
    <div class="plan-picture">
      <canvas ref={canvas} role="img" aria-label={label} />
    </div>
  );
}

function draw(canvas: HTMLCanvasElement, { layout, swaps }: PlanView): void {
  const width = isPrinting.value ? PAPER_WIDTH : canvas.parentElement!.clientWidth;
  const lanes = swaps ? 2 * LANE + 8 : 0;
  const height = LAYOUT + TICKS + lanes + 4;
  const context = prepareCanvas(canvas, width, height);
  const faint = themeColour('faint');
  const x = (position: number) => LEFT + (position / layout.length) * (width - LEFT - 4);
  const y = (offset: number) => 4 + (LAYOUT - 4) * (1 - offset / layout.height);
  const text = (words: string, left: number, top: number, align: CanvasTextAlign, baseline: CanvasTextBaseline) => {
    context.fillStyle = faint;
    context.textAlign = align;
    context.textBaseline = baseline;
    context.fillText(words, left, top);
  };
  const theme = isDark.value ? DARK_MAP : LIGHT_MAP;
  const { least, most } = boundsOf(layout.size);
  for (let index = 0; index < layout.size.length; index++) {
    const left = x(layout.from[index]!);
    const top = y(layout.offset[index]! + layout.size[index]!);
    const wide = Math.max(1, x(layout.to[index]!) - left);
    const high = Math.max(1, y(layout.offset[index]!) - top);
    context.fillStyle = css(colourOf('size', stepOn(layout.size[index]!, least, most), theme));
    context.fillRect(left, top, wide, high);
    if (wide > 3 && high > 3) {
      context.strokeStyle = themeColour('surface');
      context.strokeRect(left + 0.5, top + 0.5, wide - 1, high - 1);
    }
  }
  for (const tick of byteTicks(0, layout.height, 4)) text(tick.label, LEFT - 8, Math.max(8, y(tick.at)), 'right', 'middle');
  const axis = layout.unit === 'operations' ? 'event' : 'time';
  // The axis's name needs room at its end.
  const room = layout.unit === 'operations' ? width - 150 : width - 20;
  for (const tick of axisTicks(axis, 0, layout.length, Math.floor(width / 140))) {
    if (x(tick.at) < room) text(tick.label, x(tick.at), LAYOUT + 6, tick.at === 0 ? 'left' : 'center', 'top');
  }
  if (layout.unit === 'operations') text('allocations and frees', width - 4, LAYOUT + 6, 'right', 'top');
  if (!swaps) return;
  for (const [lane, [name, copies]] of (
    [
      ['to host', swaps.out],
      ['to GPU', swaps.back],
    ] as const
  ).entries()) {
    const top = LAYOUT + TICKS + lane * (LANE + 4);
    text(name, LEFT - 8, top + LANE / 2, 'right', 'middle');
    context.fillStyle = themeColour('line');
    context.fillRect(LEFT, top, width - LEFT - 4, LANE);
    context.fillStyle = themeColour(lane === 0 ? 'live' : 'allocated');
    for (const [from, to] of copies) context.fillRect(x(from), top + 2, Math.max(1, x(to) - x(from)), LANE - 4);
  }
}

/** Limit against overhead. */
function Curve({ curve }: { curve: SwapFacts['plan']['curve'] }) {
  const most = Math.max(1e-9, ...curve.map((point) => point.overhead));
  return (
    <table class="plan-facts" aria-label="What lower limits would cost">
      <thead>
        <tr>
          <th class="right">{CURVE_COLUMNS.limit}</th>
          <th class="right">{CURVE_COLUMNS.overhead}</th>
          <th />
        </tr>
      </thead>
      <tbody>
        {curve.map((point) => (
          <tr key={point.limit}>
            <td class="right">{formatBytes(point.limit)}</td>
            <td class="right">{overheadWords(point.overhead)}</td>
            <td>
              <span class="curve-bar" style={{ width: `${(160 * point.overhead) / most}px` }} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

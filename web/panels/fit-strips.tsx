// The canvases of the strips: drawing, hovering, and choosing a hole with the mouse or the arrow keys.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { formatBytes } from '../../src/base/bytes.ts';
import type { FitScale } from '../../src/view/fit-scale.ts';
import { largestUsable, RunKind, useOfRun } from '../../src/view/fit-strip.ts';
import type { FitLane } from '../../src/view/fit-view.ts';
import { KIND_NAMES, useWords } from '../../src/view/fit-words.ts';
import { isDark, isPrinting, PAPER_WIDTH, themeColour } from '../app/theme.ts';
import { clearStrip, drawStrip, type StripColours } from '../tracks/strip-canvas.ts';
import { holeUnder, runUnder, STRIP_HEIGHT } from '../tracks/strip-places.ts';
import { hole, pickedHole, type Side } from './fit-state.ts';

interface LaneProps {
  readonly side: Side;
  readonly lane: FitLane | undefined;
  readonly scale: FitScale;
  readonly request: number;
}

interface Tip {
  readonly x: number;
  readonly run: number;
}

/** Pixels around the pointer in which a hole counts as meant. */
const REACH = 4;

export function StripLane({ side, lane, scale, request }: LaneProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [tip, setTip] = useState<Tip | undefined>(undefined);
  const width = useWidth(canvas);
  const dark = isDark.value;
  const selected = lane && hole.value?.side === side ? runOf(lane, hole.value.address) : -1;
  const hovered = tip?.run ?? -1;
  // At once, so that a page that is printed has the colours of paper.
  useLayoutEffect(() => {
    if (!canvas.current || width === 0) return;
    if (!lane) {
      clearStrip(canvas.current, width);
      return;
    }
    const above = largestUsable(lane.strip);
    const colours = coloursOf(dark);
    drawStrip(canvas.current, width, {
      lane,
      bytes: scale.bytes,
      isLimitShown: !scale.isLimitBeyond,
      request,
      above,
      selected,
      hovered,
      colours,
    });
  }, [lane, width, scale.bytes, scale.isLimitBeyond, request, selected, hovered, dark]);
  const pointed = (event: MouseEvent) => {
    const bounds = canvas.current!.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    return { x, y: event.clientY - bounds.top, position: (x / width) * scale.bytes };
  };
  const hover = (event: MouseEvent) => {
    if (!lane) return;
    const { x, y, position } = pointed(event);
    const near = holeUnder(lane.strip, position, y, (REACH / width) * scale.bytes);
    const run = near >= 0 ? near : runUnder(lane.strip, position, y);
    setTip(run < 0 ? undefined : { x, run });
  };
  const pick = (event: MouseEvent) => {
    if (!lane) return;
    const { y, position } = pointed(event);
    choose(holeUnder(lane.strip, position, y, (REACH / width) * scale.bytes));
  };
  const choose = (run: number) => {
    if (lane && run >= 0) pickedHole.value = { side, address: lane.strip.runAddress[run]! };
  };
  const step = (event: KeyboardEvent) => {
    const holes = lane?.strip.holes;
    if (!holes || holes.length === 0) return;
    const now = holes.indexOf(selected);
    const target = { ArrowRight: now + 1, ArrowLeft: Math.max(0, now - 1), Home: 0, End: holes.length - 1 }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    choose(holes[Math.min(holes.length - 1, target)]!);
  };
  return (
    <div class="fit-strip">
      <canvas
        ref={canvas}
        tabIndex={0}
        role="img"
        style={{ height: `${STRIP_HEIGHT}px` }}
        aria-label={lane ? describe(lane, request) : 'Memory is being looked at'}
        onMouseMove={hover}
        onMouseLeave={() => setTip(undefined)}
        onClick={pick}
        onKeyDown={step}
      />
      {lane && tip && tip.run < lane.strip.runAt.length && (
        <div class="tip" role="tooltip" style={{ left: `${tip.x}px`, top: '78px', translate: tip.x > width / 2 ? '-100% 0' : 'none' }}>
          <RunTip lane={lane} run={tip.run} request={request} />
        </div>
      )}
    </div>
  );
}

function RunTip({ lane: { strip }, run, request }: { lane: FitLane; run: number; request: number }) {
  const kind = strip.runKind[run] as (typeof RunKind)[keyof typeof RunKind];
  const segment = strip.runSegment[run]!;
  return (
    <>
      <strong>{formatBytes(strip.runSize[run]!)}</strong> {KIND_NAMES[kind]}
      {kind === RunKind.Hole && `, ${useWords(useOfRun(strip, run), strip.runSize[run]!, request)}`}
      <div class="faint">in a segment of {formatBytes(strip.segmentSize[segment]!)}</div>
    </>
  );
}

function describe({ strip, served }: FitLane, request: number): string {
  const largest = largestUsable(strip);
  const hole =
    largest < 0 ? 'none that the request could use' : `the largest that the request could use ${formatBytes(strip.runSize[largest]!)}`;
  const fits = served.length > 0 ? ` The request for ${formatBytes(request)} fits.` : '';
  return `Memory as one strip: ${formatBytes(strip.reserved)} reserved in ${strip.segmentAt.length} segments, ${strip.holes.length} holes, ${hole}.${fits} Left and right arrow keys choose a hole.`;
}

/** What no allocator can change: memory in use without a hole, and the request behind it. */
export function PackedStrip({ lane, scale, request }: Omit<LaneProps, 'side'> & { lane: FitLane }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(canvas);
  const dark = isDark.value;
  const used = lane.strip.used + lane.strip.pending;
  // At once, so that a page that is printed has the colours of paper.
  useLayoutEffect(() => {
    if (!canvas.current || width === 0) return;
    const strip = {
      ...lane.strip,
      reserved: used,
      segmentAt: Float64Array.of(0),
      segmentSize: Float64Array.of(used),
      segmentUse: new Uint8Array(1),
    };
    const runs = { runAt: Float64Array.of(0), runSize: Float64Array.of(used), runKind: new Uint8Array(1), runSegment: new Int32Array(1) };
    drawStrip(canvas.current, width, {
      lane: { ...lane, strip: { ...strip, ...runs, runAddress: new Float64Array(1), holes: new Int32Array(0) }, unplaced: 0 },
      bytes: scale.bytes,
      isLimitShown: !scale.isLimitBeyond,
      request,
      behind: used,
      above: -1,
      selected: -1,
      hovered: -1,
      colours: coloursOf(dark),
    });
  }, [lane, width, scale.bytes, scale.isLimitBeyond, request, dark]);
  const over = lane.limit === undefined ? 0 : used + request - lane.limit;
  return (
    <div class="fit-strip">
      <canvas
        ref={canvas}
        role="img"
        style={{ height: `${STRIP_HEIGHT}px` }}
        aria-label={`Without holes: ${formatBytes(used)} in use, then the request for ${formatBytes(request)}${over > 0 ? `, ${formatBytes(over)} beyond the limit` : ''}.`}
      />
    </div>
  );
}

function runOf({ strip }: FitLane, address: number): number {
  return strip.holes.find((run) => strip.runAddress[run] === address) ?? -1;
}

/** Of the canvas on the screen, or on paper. */
function useWidth(canvas: { readonly current: HTMLCanvasElement | null }): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const parent = canvas.current?.parentElement;
    if (!parent) return undefined;
    const observer = new ResizeObserver(() => setWidth(parent.clientWidth));
    observer.observe(parent);
    return () => observer.disconnect();
  }, []);
  return isPrinting.value ? PAPER_WIDTH : width;
}

/** By theme: asking the browser for colours makes it compute the styles of the page. */
const known = new Map<boolean, StripColours>();

function coloursOf(dark: boolean): StripColours {
  let colours = known.get(dark);
  if (!colours) {
    colours = {
      text: themeColour('text'),
      faint: themeColour('faint'),
      surface: themeColour('surface'),
      used: themeColour('fit-used'),
      pending: themeColour('fit-pending'),
      hole: themeColour('fit-hole'),
      otherHole: themeColour('fit-other'),
      pin: themeColour('fit-pin'),
      bad: themeColour('bad'),
      good: themeColour('good'),
      font: getComputedStyle(document.body).fontFamily,
    };
    known.set(dark, colours);
  }
  return colours;
}

// The flame graph of live bytes by call stack. A click zooms, the frames above are the way back; every part works with the keyboard.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { formatBytes } from '../../src/base/bytes.ts';
import { formatShare } from '../../src/report/words/numbers.ts';
import { type FlameGraph, type FlameRef, refOf } from '../../src/view/flame.ts';
import { flameRoot, since } from '../app/state.ts';
import { isDark, isPrinting } from '../app/theme.ts';
import { drawFlame, neighbour, rectAt } from './flame-canvas.ts';
import { chooseWeight, flame, focused, isInverted, isSame, searched, turn, type Weight, weight, zoomOut, zoomTo } from './flame-state.ts';

interface Tip {
  readonly x: number;
  readonly y: number;
  readonly index: number;
}

export function Flame() {
  const graph = flame.value;
  return (
    <div class="flame">
      <Controls />
      {graph && graph.total > 0 ? <Graph graph={graph} /> : <Nothing />}
    </div>
  );
}

const WEIGHTS: readonly (readonly [Weight, string])[] = [
  ['cursor', 'live at the cursor'],
  ['peak', 'live at the peak'],
  ['range', 'left of the range'],
];

function Controls() {
  const graph = flame.value;
  const isSearching = searched.value.trim() !== '';
  return (
    <div class="flame-bar">
      <select
        aria-label="Bytes of the flame graph"
        value={weight.value}
        onChange={(event) => chooseWeight(event.currentTarget.value as Weight)}
      >
        {WEIGHTS.filter(([name]) => name !== 'range' || since.value).map(([name, text]) => (
          <option key={name} value={name}>
            {text}
          </option>
        ))}
      </select>
      <fieldset class="switch">
        <legend>Order of frames</legend>
        <Side name="Callers first" toInverted={false} />
        <Side name="Innermost first" toInverted />
      </fieldset>
      <span class="flame-search">
        <input
          type="search"
          size={9}
          aria-label="Search in the flame graph"
          placeholder="highlight"
          value={searched.value}
          onInput={(event) => {
            searched.value = event.currentTarget.value;
          }}
        />
        <span class="faint" data-testid="flame-share" role="status">
          {isSearching && graph ? formatShare(graph.matched, graph.total) : ''}
        </span>
      </span>
      <button type="button" class="small" disabled={flameRoot.value === undefined} onClick={() => zoomTo(undefined)}>
        Back to all
      </button>
    </div>
  );
}

function Side({ name, toInverted }: { name: string; toInverted: boolean }) {
  const isOn = isInverted.value === toInverted;
  return (
    <button type="button" aria-pressed={isOn} class={isOn ? 'on' : ''} onClick={() => turn(toInverted)}>
      {name}
    </button>
  );
}

function Graph({ graph }: { graph: FlameGraph }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [tip, setTip] = useState<Tip | undefined>(undefined);
  const [hasFocus, setHasFocus] = useState(false);
  const [width, setWidth] = useState(0);
  const index = indexOf(graph, focused.value ?? flameRoot.value);
  const dark = isDark.value;
  const isSearching = searched.value.trim() !== '';
  useEffect(() => {
    const parent = canvas.current!.parentElement!;
    const observer = new ResizeObserver(() => setWidth(parent.clientWidth));
    observer.observe(parent);
    return () => observer.disconnect();
  }, []);
  // At once, so that a page that is printed has the colours of paper.
  useLayoutEffect(() => {
    drawFlame(canvas.current!, graph, { isDark: dark, focused: hasFocus || flameRoot.value ? index : -1, isSearching });
  }, [graph, dark, index, hasFocus, isSearching, width, isPrinting.value]);
  const press = (event: KeyboardEvent) => {
    const isAction = event.key === 'Enter' || event.key === ' ' || (event.key === 'Escape' && flameRoot.value !== undefined);
    const next = isAction ? -1 : neighbour(graph, index, event.key);
    if (!isAction && next < 0) return;
    event.preventDefault();
    event.stopPropagation();
    if (next >= 0) focused.value = refOf(graph, next);
    else if (event.key === 'Escape') zoomOut();
    else zoomTo(refOf(graph, index));
  };
  const hover = (event: MouseEvent) => {
    const at = rectAt(graph, canvas.current!, event);
    const bounds = canvas.current!.getBoundingClientRect();
    setTip(at < 0 ? undefined : { x: event.clientX - bounds.left, y: event.clientY - bounds.top, index: at });
  };
  return (
    <>
      <p class="flame-words faint" id="flame-words" data-testid="flame-words" aria-live="polite">
        {describe(graph, index)}
      </p>
      <div class="flame-scroll">
        {/* biome-ignore lint/a11y/noInteractiveElementToNoninteractiveRole: it takes keys of its own */}
        <canvas
          ref={canvas}
          tabIndex={0}
          role="application"
          aria-label="Flame graph of live bytes by call stack. Arrow keys move between frames, Enter zooms in, Escape zooms out."
          aria-describedby="flame-words"
          onClick={(event) => {
            const at = rectAt(graph, canvas.current!, event);
            if (at >= 0) zoomTo(refOf(graph, at));
          }}
          onKeyDown={press}
          onFocus={() => setHasFocus(true)}
          onBlur={() => setHasFocus(false)}
          onMouseMove={hover}
          onMouseLeave={() => setTip(undefined)}
        />
        {tip && graph.name[tip.index] !== undefined && (
          <div
            class="tip"
            style={{ left: `${tip.x + 12}px`, top: `${tip.y + 12}px`, translate: tip.x > width / 2 ? 'calc(-100% - 24px) 0' : 'none' }}
          >
            <strong>{formatBytes(graph.bytes[tip.index]!)}</strong> {formatShare(graph.bytes[tip.index]!, graph.total)}
            <div>{graph.name[tip.index]}</div>
            <div class="faint">{graph.place[tip.index]}</div>
          </div>
        )}
      </div>
    </>
  );
}

function indexOf(graph: FlameGraph, ref: FlameRef | undefined): number {
  const found = ref === undefined ? -1 : [...graph.node.keys()].findIndex((index) => isSame(refOf(graph, index), ref));
  return Math.max(0, found);
}

function describe(graph: FlameGraph, index: number): string {
  const place = graph.place[index] ? `, ${graph.place[index]!.split('/').slice(-2).join('/')}` : '';
  const share = index === 0 ? '' : ` (${formatShare(graph.bytes[index]!, graph.bytes[0]!)})`;
  return `${graph.name[index]}${place}: ${formatBytes(graph.bytes[index]!)}${share}`;
}

function Nothing() {
  if (flame.value === undefined) return null;
  return (
    <p class="faint">
      {flameRoot.value === undefined
        ? 'Nothing is live at this moment.'
        : 'Nothing of this is live at this moment. Go back to see the rest.'}
    </p>
  );
}

// Runs of other values: which one is open, and the largest value that fits on the chosen GPU.
import { effect, signal } from '@preact/signals';
import type { HashState } from '../../src/view/hash-state.ts';
import type { Calls, Method } from '../../src/view/protocol.ts';
import type { ValueInfo, ValueTable } from '../../src/view/value-table.ts';
import { openSource } from '../app/opening.ts';
import { axis, capacity, colour, guarded, main, type OpenSource, sources } from '../app/state.ts';
import type { Connection, OnProgress } from '../data/connection.ts';
import { newest } from '../data/latest.ts';

export const table = signal<ValueTable | undefined>(undefined);
export const searching = signal<{ doing: string; fraction: number } | undefined>(undefined);

/** What the open run can be given; undefined: it is a recording. */
export function valuesOf(source: OpenSource | undefined): ValueInfo | undefined {
  return source?.info?.values;
}

/** The same source at other values. */
class PointConnection implements Connection {
  readonly base: Connection;
  readonly origin: Connection['origin'];
  private readonly point: readonly number[];

  constructor(base: Connection, point: readonly number[]) {
    this.base = base;
    this.origin = base.origin;
    this.point = point;
  }

  ask<Name extends Method>(
    method: Name,
    gpu: number,
    ask: Calls[Name]['ask'],
    onProgress?: OnProgress,
    abort?: AbortSignal,
  ): Promise<Calls[Name]['answer']> {
    return this.base.ask(method, gpu, { ...ask, point: this.point }, onProgress, abort);
  }

  prepare(): void {
    this.base.prepare();
  }

  rest(): void {
    this.base.rest();
  }
}

/** The source as an address wants it: `values=12x512`. */
export function atWantedValues(source: OpenSource, { values }: HashState): OpenSource {
  if (values === undefined || !/^\d{1,8}(x\d{1,8})*$/.test(values)) return source;
  return { ...source, connection: new PointConnection(source.connection, values.split('x').map(Number)) };
}

/** Opens the run of other values in the place of the one that is open. */
export function choosePoint(point: readonly number[]): void {
  const lane = main.value;
  const known = valuesOf(lane?.source);
  if (!lane || !known || known.point.join() === point.join()) return;
  const { source } = lane;
  const base = source.connection instanceof PointConnection ? source.connection.base : source.connection;
  const next: OpenSource = { name: source.name, connection: new PointConnection(base, point) };
  sources.value = sources.value.map((each) => (each === source ? next : each));
  void openSource(next, { axis: axis.value, colour: colour.value, capacity: capacity.value });
}

/** The answer follows the GPU and the open run. An older search is stopped. */
const newSearch = newest();
effect(() => {
  const lane = main.value;
  const known = valuesOf(lane?.source);
  const gpuBytes = capacity.value ?? known?.gpuBytes;
  if (!lane || !known || gpuBytes === undefined) return;
  const abort = newSearch();
  searching.value = { doing: 'searching the largest value', fraction: 0 };
  void guarded(async () => {
    try {
      const onProgress: OnProgress = ({ doing, fraction }) => {
        searching.value = { doing, fraction };
      };
      table.value = await lane.source.connection.ask('values', lane.gpu.device, { gpuBytes }, onProgress, abort);
    } finally {
      if (!abort.aborted) searching.value = undefined;
    }
  });
});

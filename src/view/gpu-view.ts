// Answers every question of the page about one GPU of a recording. Runs are replayed when they are first needed. Only a few
// are kept, since each takes about forty bytes per event.
import { type AllocatorChoice, chooseAllocators } from '../allocator/registry.ts';
import { UsageError } from '../base/errors.ts';
import { withPlan } from '../plan/steps/planned-choice.ts';
import type { MemoryLimits } from '../replay/limits.ts';
import { reconstruct } from '../replay/reconstruct.ts';
import { recordedChoice } from '../replay/reconstruct-engine.ts';
import type { Reconstruction } from '../replay/reconstruction.ts';
import type { ReplayOptions } from '../replay/replay.ts';
import { gpuWith } from '../replay/what-if.ts';
import { categoriesOf } from '../report/categories.ts';
import { usualChoices } from '../report/what-if.ts';
import { liveSize } from '../trace/summary.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import type { ColourMode, LegendEntry } from './block-classes.ts';
import { describeEvent } from './event-words.ts';
import { findMisfits, type Misfits } from './fit-misfits.ts';
import { type FitLane, type FitRun, type HoleInfo, holeOf, laneOf, limitOf } from './fit-view.ts';
import { type FlameGraph, flameGraph, insideOf, nodeOf } from './flame.ts';
import { GpuParts } from './gpu-parts.ts';
import { type History, watchChoice, watchRecorded } from './history.ts';
import { type MapCells, mapCells } from './map-cells.ts';
import {
  type BlockInfo,
  type Calls,
  type GpuInfo,
  type LiveRow,
  type LiveState,
  type Moment,
  RECORDED,
  type RunInfo,
  type Selection,
  type StripAsk,
} from './protocol.ts';
import { rangeFigures } from './range-figures.ts';
import { framesWith, matcherOf, parseQuery, type Searched, search } from './search.ts';
import type { StackView } from './stack-view.ts';
import { type TimelineColumns, timelineColumns } from './timeline.ts';

const MOST_RUNS = 4;
const MOST_ROWS = 500;
const MOST_MARKS = 2000;
const MOST_FRAMES = 40;

/** What the reconstruction of the recorded run found. */
interface Recorded {
  readonly choice: AllocatorChoice;
  readonly job: Pick<ReplayOptions, 'emptyCacheBefore' | 'rules'>;
  readonly limits: MemoryLimits;
}

export class GpuView {
  readonly trace: Trace;
  private readonly parts: GpuParts;
  private readonly histories = new Map<string, History>();
  private recorded: Recorded | undefined;

  constructor(trace: Trace) {
    this.trace = trace;
    this.parts = new GpuParts(trace);
  }

  /** Live memory by meaning. */
  get stack(): StackView {
    return this.parts.stack;
  }

  describe(): GpuInfo {
    const { trace } = this;
    const { clock } = this.parts;
    const ooms: Moment[] = [];
    for (let event = 0; event < trace.events.count && ooms.length < MOST_MARKS; event++)
      if (trace.events.kind[event] === EventKind.Oom) ooms.push(this.momentOf(event));
    const marks = trace.annotations
      .filter((annotation) => annotation.stage !== 'END' && annotation.device === trace.device)
      .slice(0, MOST_MARKS)
      .map(({ name, timeUs }) => {
        const since = Math.max(0, timeUs - clock.startUs);
        return { name, timeUs: since, event: clock.firstFrom('time', since) };
      });
    return {
      device: trace.device,
      events: clock.count,
      allocations: trace.allocations.count,
      durationUs: clock.durationUs,
      streams: trace.streams.length,
      hasStacks: trace.symbols.stacks.count > 0,
      ooms,
      marks,
    };
  }

  run(name: string, onProgress?: (fraction: number) => void): RunInfo {
    const history = this.history(name, onProgress);
    return {
      run: name,
      peakReserved: history.peakReserved,
      peak: this.momentOf(history.peakReservedEvent),
      height: history.layout.height,
      choices: usualChoices(this.reconstructed().choice).map((choice) => choice.name),
    };
  }

  timeline({ run, axis, from, to, columns }: Calls['timeline']['ask']): TimelineColumns {
    const history = this.history(run);
    const ranges = { allocated: history.allocatedRange, reserved: history.reservedRange, live: this.parts.liveRange };
    return timelineColumns(this.parts.clock, axis, from, to, columns, ranges);
  }

  map({ run, window, colour, selection }: Calls['map']['ask']): MapCells {
    const history = this.history(run);
    const classify = this.parts.classes.classifier(colour, this.parts.clock.span(window.axis), this.selector(history, selection));
    return mapCells(this.parts.clock, this.parts.lifetimes, history, window, classify, colour === 'age');
  }

  legend(colour: ColourMode): readonly LegendEntry[] {
    return this.parts.classes.of(colour).legend;
  }

  stackAt({ run, by, event, allocation }: Calls['stackAt']['ask']): Calls['stackAt']['answer'] {
    const history = this.history(run);
    const moment = this.parts.stack.at(by, event);
    return {
      ...moment,
      allocated: history.allocated[moment.event] ?? 0,
      reserved: history.reserved[moment.event] ?? 0,
      block: allocation === undefined ? undefined : this.block(run, allocation),
    };
  }

  moment({ run, axis, position, since }: Calls['moment']['ask']): LiveState {
    const { trace } = this;
    const { clock } = this.parts;
    const history = this.history(run);
    const event = clock.lastAt(axis, position);
    const live = this.parts.lifetimes.liveAfter(event, since);
    const sizeOf = (index: number) => liveSize(trace.allocations.requested[index]!);
    const range =
      since === undefined || event < since
        ? undefined
        : rangeFigures(
            trace,
            this.parts.lifetimes,
            { live: this.parts.live, liveRange: this.parts.liveRange, history },
            { first: since, last: event, left: live },
          );
    const sites = new Map<string, { bytes: number; count: number }>();
    for (const index of live) {
      const label = this.parts.sites.of(index);
      const site = sites.get(label) ?? { bytes: 0, count: 0 };
      site.bytes += sizeOf(index);
      site.count++;
      sites.set(label, site);
    }
    const largest = live.sort((a, b) => trace.allocations.requested[b]! - trace.allocations.requested[a]! || a - b).slice(0, MOST_ROWS);
    return {
      ...this.momentOf(event),
      what: describeEvent(this.trace, event),
      allocated: event < 0 ? 0 : history.allocated[event]!,
      reserved: event < 0 ? 0 : history.reserved[event]!,
      live: event < 0 ? 0 : this.parts.live[event]!,
      liveCount: live.length,
      rows: largest.map((index) => this.liveRow(history, index, event)),
      sites: [...sites].map(([site, sums]) => ({ site, ...sums })).sort((a, b) => b.bytes - a.bytes),
      range,
    };
  }

  flame({ event, since, under, isInverted, search: text }: Calls['flame']['ask']): FlameGraph {
    const { trace } = this;
    const leaves = new Map<number, number>();
    for (const index of this.parts.lifetimes.liveAfter(this.within(event)!, since)) {
      const node = nodeOf(trace, index);
      leaves.set(node, (leaves.get(node) ?? 0) + liveSize(trace.allocations.requested[index]!));
    }
    const matches = text === undefined ? undefined : framesWith(trace, text);
    return flameGraph(
      trace,
      [...leaves].map(([node, bytes]) => ({ node, bytes })),
      { under, isInverted, matches },
    );
  }

  blockAt({ run, axis, position, offset }: Calls['blockAt']['ask']): BlockInfo | undefined {
    const history = this.history(run);
    const event = this.parts.clock.lastAt(axis, position);
    let found = -1;
    this.parts.lifetimes.each(event, event + 1, (index) => {
      const parts = partsOf(history, index);
      for (let part = 0; part < parts.length; part += 2) {
        if (parts[part]! <= offset && offset < parts[part]! + parts[part + 1]!) found = index;
      }
    });
    return found < 0 ? undefined : this.block(run, found);
  }

  block(run: string, allocation: number): BlockInfo | undefined {
    const { trace } = this;
    const { clock, lifetimes } = this.parts;
    const history = this.history(run);
    if (!(allocation >= 0 && allocation < lifetimes.count)) return undefined;
    const node = nodeOf(trace, allocation);
    const end = lifetimes.released[allocation]!;
    return {
      allocation,
      address: this.formatAddress(history.address[allocation]!),
      size: history.size[allocation]!,
      requested: trace.allocations.requested[allocation]!,
      stream: trace.allocations.stream[allocation]!,
      parts: partsOf(history, allocation),
      start: this.momentOf(lifetimes.start[allocation]!),
      end: end >= clock.count ? undefined : this.momentOf(end),
      site: this.parts.sites.of(allocation),
      notes: this.parts.notes.of(allocation),
      node,
      frames:
        node < 0
          ? []
          : [...trace.symbols.framesOf(node)].slice(0, MOST_FRAMES).map((frame) => `${frame.name}  ${frame.filename}:${frame.line}`),
    };
  }

  search({ run, text }: Calls['search']['ask']): Calls['search']['answer'] {
    const history = this.history(run);
    const query = parseQuery(text);
    if (!query) return { hits: [], total: 0, moments: [], searched: '', blocks: [] };
    const result = search(this.searched(history), query);
    return { ...result, blocks: result.hits.map((index) => this.liveRow(history, index, this.parts.lifetimes.start[index]!)) };
  }

  misfits(): Misfits {
    return findMisfits(this.trace, this.history(RECORDED));
  }

  strip({ event, request, order, ...ask }: Calls['strip']['ask'], onProgress?: (fraction: number) => void): FitLane {
    return laneOf(this.fitRun(ask, onProgress), this.within(event)!, this.within(request), order);
  }

  hole({ event, request, address, ...ask }: Calls['hole']['ask']): HoleInfo | undefined {
    const run = this.fitRun(ask);
    const at = { event: this.within(event)!, request: this.within(request), address };
    return holeOf(run, at, (allocation) => this.liveRow(run.history, allocation, at.event));
  }

  /** Links get typed, so an event may be beyond the last one. */
  private within(event: number | undefined): number | undefined {
    return event === undefined ? undefined : Math.min(event, this.parts.clock.count - 1);
  }

  private fitRun({ run, limit, isGiven }: Pick<StripAsk, 'run' | 'limit' | 'isGiven'>, onProgress?: (fraction: number) => void): FitRun {
    const { trace } = this;
    const { clock, lifetimes } = this.parts;
    const isRecorded = run === RECORDED;
    const history =
      isRecorded || limit === undefined
        ? this.history(run, onProgress)
        : this.keep(`${run} in ${limit} ${isGiven ?? false}`, () =>
            this.watchOther(run, onProgress, { bytes: limit, isGiven: isGiven ?? false }),
          );
    const { choice, limits } = this.reconstructed();
    const kind = isRecorded || run === choice.name ? choice.kind : chooseAllocators(run)[0]!.kind;
    return { trace, clock, lifetimes, history, kind, isRecorded, limit: isRecorded ? limitOf(limits) : limit };
  }

  private liveRow(history: History, index: number, event: number): LiveRow {
    const { trace } = this;
    const { clock, lifetimes } = this.parts;
    return {
      allocation: index,
      address: this.formatAddress(history.address[index]!),
      requested: trace.allocations.requested[index]!,
      size: history.size[index]!,
      stream: trace.allocations.stream[index]!,
      event: lifetimes.start[index]!,
      ageUs: clock.position('time', event) - clock.position('time', lifetimes.start[index]!),
      livedUs: this.livedUs(index),
      site: this.parts.sites.of(index),
      notes: this.parts.notes.of(index),
      category: categoriesOf(trace).of(index).category,
    };
  }

  private livedUs(index: number): number | undefined {
    const { clock, lifetimes } = this.parts;
    const end = lifetimes.released[index]!;
    return end >= clock.count ? undefined : clock.position('time', end) - clock.position('time', lifetimes.start[index]!);
  }

  private searched(history: History): Searched {
    const { trace } = this;
    const { clock, notes } = this.parts;
    return {
      trace,
      history,
      notes,
      siteOf: (allocation) => this.parts.sites.of(allocation),
      describe: (event) => describeEvent(this.trace, event),
      momentOf: (event) => this.momentOf(event),
      momentAt: (timeUs) => this.momentOf(Math.min(clock.count - 1, clock.firstFrom('time', Math.max(0, timeUs - clock.startUs)))),
    };
  }

  private selector(history: History, selection: Selection | undefined): ((allocation: number) => boolean) | undefined {
    const rectangle = selection?.tail ?? (selection?.node === undefined ? undefined : { node: selection.node });
    if (rectangle) {
      const inside = insideOf(this.trace, rectangle);
      return (allocation) => inside(nodeOf(this.trace, allocation));
    }
    if (selection?.site !== undefined) return (allocation) => this.parts.sites.of(allocation) === selection.site;
    const { category } = selection ?? {};
    if (category !== undefined) return (allocation) => categoriesOf(this.trace).of(allocation).category === category;
    const query = selection?.search === undefined ? undefined : parseQuery(selection.search);
    return query ? matcherOf(this.searched(history), query) : undefined;
  }

  private history(name: string, onProgress?: (fraction: number) => void): History {
    return this.keep(name, () => (name === RECORDED ? this.watchRecorded(onProgress) : this.watchOther(name, onProgress)));
  }

  private keep(key: string, watch: () => History): History {
    let history = this.histories.get(key);
    if (history) {
      this.histories.delete(key);
    } else {
      history = watch();
    }
    this.histories.set(key, history);
    // The recorded run stays, since all others start from it.
    for (const oldest of this.histories.keys()) {
      if (this.histories.size <= MOST_RUNS) break;
      if (oldest !== RECORDED) this.histories.delete(oldest);
    }
    return history;
  }

  private watchRecorded(onProgress?: (fraction: number) => void): History {
    const { history, reconstruction } = watchRecorded(this.trace, onProgress);
    this.recorded = this.recordedFrom(reconstruction);
    return history;
  }

  private watchOther(name: string, onProgress?: (fraction: number) => void, limit?: { bytes: number; isGiven: boolean }): History {
    const { choice: recorded, job, limits } = this.reconstructed();
    const [choice] = name === recorded.name ? [recorded] : chooseAllocators(name);
    if (!choice) throw new UsageError(`there is no allocator '${name}'`);
    const gpu = limit && gpuWith(limit.bytes, limit.isGiven ? undefined : limits);
    return watchChoice(this.trace, withPlan(choice, this.trace), choice === recorded, job, onProgress, gpu);
  }

  /** A thread that only replays need not keep the recorded run. */
  private reconstructed(): Recorded {
    this.recorded ??= this.recordedFrom(reconstruct(this.trace));
    return this.recorded;
  }

  private recordedFrom(reconstruction: Omit<Reconstruction, 'allocator'>): Recorded {
    const { emptyCacheBefore, rules, limits } = reconstruction;
    return { choice: recordedChoice(this.trace, reconstruction), job: { emptyCacheBefore, rules }, limits };
  }

  private momentOf(event: number): Moment {
    return { event, timeUs: this.parts.clock.position('time', event) };
  }

  private formatAddress(address: number): string {
    return Number.isNaN(address) ? '' : this.trace.symbols.addresses.format(address);
  }
}

/** A failed request has no parts. */
function partsOf(history: History, allocation: number): readonly number[] {
  const stitched = history.parts.get(allocation);
  if (stitched) return [...stitched];
  const offset = history.offset[allocation]!;
  return Number.isNaN(offset) ? [] : [offset, history.size[allocation]!];
}

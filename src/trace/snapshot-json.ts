// Writes a recording as a PyTorch snapshot in JSON, with the keys of torch.cuda.memory._snapshot(), for memory_viz.
// JSON cannot share frames, so the text can be huge: it is written in pieces and never held whole.
import { numberToJson, settingsToJson } from './settings-json.ts';
import { ACTIONS } from './snapshot/names.ts';
import { NO_STACK, type Symbols } from './symbols.ts';
import { type Annotation, type Block, EventKind, type PoolId, type Recording, type Segment, type Trace } from './trace.ts';

/** Characters gathered before they go to the sink. */
const CHUNK = 1 << 16;

const ACTION_OF_KIND: ReadonlyMap<number, string> = new Map(ACTIONS.map(([action, kind]) => [kind, action]));

const BLOCK_STATES = { live: 'active_allocated', pending: 'active_pending_free', free: 'inactive' } as const;

/** Writes the recording. Returns the number of events that a snapshot cannot hold (record_stream, empty_cache, ...). */
export function writeSnapshotJson(recording: Recording, sink: (text: string) => void): number {
  return new SnapshotWriter(recording.traces, sink).write();
}

class SnapshotWriter {
  private readonly traces: readonly Trace[];
  private readonly sink: (text: string) => void;
  private pending: string[] = [];
  private pendingLength = 0;
  private readonly frameTexts = new Map<Symbols, string[]>();

  constructor(traces: readonly Trace[], sink: (text: string) => void) {
    this.traces = traces;
    this.sink = sink;
  }

  write(): number {
    this.put('{"segments":[');
    this.writeSegments();
    this.put('],\n"device_traces":[');
    const leftOut = this.writeDeviceTraces();
    // A snapshot has one set of settings for the whole process.
    const settings = this.traces.find((trace) => trace.settings.size > 0)?.settings ?? new Map();
    this.put(`],\n"allocator_settings":${settingsToJson(settings)},\n"external_annotations":[`);
    this.writeAnnotations();
    this.put(']');
    this.writeLimits();
    this.put('}\n');
    this.flush();
    return leftOut;
  }

  private writeSegments(): void {
    let separator = '\n';
    for (const trace of this.traces) {
      for (const segment of trace.endSegments ?? []) {
        this.put(separator);
        this.writeSegment(trace, segment);
        separator = ',\n';
      }
    }
  }

  private writeSegment(trace: Trace, segment: Segment): void {
    const live = segment.blocks.filter((block) => block.state === 'live');
    const active = segment.blocks.filter((block) => block.state !== 'free');
    this.put(
      `{"device":${trace.device},"address":${addressText(trace, segment.address)},"total_size":${segment.size}` +
        `,"allocated_size":${sum(live, 'size')},"active_size":${sum(active, 'size')},"requested_size":${sum(active, 'requested')}` +
        `,"stream":${streamText(trace, segment.stream)},"segment_type":"${segment.small ? 'small' : 'large'}"` +
        `,"segment_pool_id":${poolText(trace.pools[segment.pool])},"is_expandable":${segment.expandable},"frames":[`,
    );
    this.writeFrames(trace.symbols, segment.stack);
    this.put('],"blocks":[');
    segment.blocks.forEach((block, index) => {
      this.put(
        `${index > 0 ? ',' : ''}{"address":${addressText(trace, block.address)},"size":${block.size}` +
          `,"requested_size":${block.requested},"state":"${BLOCK_STATES[block.state]}","frames":[`,
      );
      this.writeFrames(trace.symbols, block.stack);
      this.put(']}');
    });
    this.put(']}');
  }

  /** The position in the list is the GPU's index, so GPUs that were not recorded get an empty list. */
  private writeDeviceTraces(): number {
    const byDevice = new Map(this.traces.map((trace) => [trace.device, trace]));
    const devices = Math.max(-1, ...byDevice.keys()) + 1;
    let leftOut = 0;
    for (let device = 0; device < devices; device++) {
      this.put(device > 0 ? ',\n[' : '\n[');
      const trace = byDevice.get(device);
      if (trace) leftOut += this.writeEvents(trace);
      this.put(']');
    }
    return leftOut;
  }

  private writeEvents(trace: Trace): number {
    let leftOut = 0;
    let separator = '\n';
    for (let event = 0; event < trace.events.count; event++) {
      const action = ACTION_OF_KIND.get(trace.events.kind[event]!);
      if (!action) {
        leftOut++;
        continue;
      }
      this.put(separator);
      this.writeEvent(trace, event, action);
      separator = ',\n';
    }
    return leftOut;
  }

  private writeEvent(trace: Trace, event: number, action: string): void {
    const { events, symbols } = trace;
    const address = events.address[event]!;
    const where = events.kind[event] === EventKind.Oom ? `"device_free":${address}` : `"addr":${addressText(trace, address)}`;
    const stack = events.stack[event]!;
    const metadata = symbols.strings[events.metadata[event]!] ?? '';
    const compileContext = symbols.strings[events.compileContext?.[event] ?? 0] ?? '';
    let text =
      `{"action":"${action}",${where},"size":${events.size[event]!},"stream":${streamText(trace, events.stream[event]!)}` +
      `,"time_us":${numberToJson(events.timeUs[event]!)}`;
    if (events.pool[event]! >= 0) text += `,"pool_id":${poolText(trace.pools[events.pool[event]!])}`;
    if (compileContext !== '') text += `,"compile_context":${JSON.stringify(compileContext)}`;
    if (metadata !== '') text += `,"user_metadata":${JSON.stringify(metadata)}`;
    this.put(text);
    if (stack !== NO_STACK) {
      this.put(',"frames":[');
      this.writeFrames(symbols, stack);
      this.put(']');
    }
    this.put('}');
  }

  private writeFrames(symbols: Symbols, stack: number): void {
    for (let node = stack; node !== NO_STACK; node = symbols.stacks.parent(node)) {
      const text = this.frameText(symbols, symbols.stacks.frame(node));
      this.put(node === stack ? text : `,${text}`);
    }
  }

  private frameText(symbols: Symbols, frame: number): string {
    let texts = this.frameTexts.get(symbols);
    if (!texts) {
      texts = [];
      this.frameTexts.set(symbols, texts);
    }
    const { strings, frames } = symbols;
    texts[frame] ??=
      `{"name":${JSON.stringify(strings[frames.name(frame)] ?? '')},` +
      `"filename":${JSON.stringify(strings[frames.filename(frame)] ?? '')},"line":${frames.line(frame)}}`;
    return texts[frame];
  }

  /** A snapshot has one list for the whole process. Traces may share it or hold a part each. */
  private writeAnnotations(): void {
    let separator = '\n';
    for (const annotations of new Set(this.traces.map((trace) => trace.annotations))) {
      for (const annotation of annotations) {
        this.put(separator + annotationText(annotation));
        separator = ',\n';
      }
    }
  }

  /** PyTorch writes no limits, and pinned memory event by event. Our reader finds both by these keys, and other readers ignore them. */
  private writeLimits(): void {
    const { deviceBytes, memoryFraction } = this.traces[0]?.limits ?? {};
    if (deviceBytes !== undefined) this.put(`,\n"total":${deviceBytes}`);
    if (memoryFraction !== undefined) this.put(`,\n"frac":${memoryFraction}`);
    const hostMemory = this.traces[0]?.hostMemory;
    if (hostMemory) this.put(`,\n"pinned_host_memory":${JSON.stringify(hostMemory)}`);
  }

  private put(text: string): void {
    this.pending.push(text);
    this.pendingLength += text.length;
    if (this.pendingLength >= CHUNK) this.flush();
  }

  private flush(): void {
    if (this.pendingLength > 0) this.sink(this.pending.join(''));
    this.pending = [];
    this.pendingLength = 0;
  }
}

function annotationText({ name, stage, device, timeUs }: Annotation): string {
  return `{"stage":"${stage}","name":${JSON.stringify(name)},"device":${device},"time_us":${numberToJson(timeUs)}}`;
}

function addressText(trace: Trace, encoded: number): string {
  // Below 2^48 an address is its own encoding.
  return encoded < 2 ** 48 ? String(encoded) : String(trace.symbols.addresses.decode(encoded));
}

/** Handles are pointers, and encoded like addresses. */
function streamText(trace: Trace, stream: number): string {
  return addressText(trace, trace.streams[stream] ?? 0);
}

function poolText(pool: PoolId | undefined): string {
  return `[${pool?.[0] ?? 0},${pool?.[1] ?? 0}]`;
}

function sum(blocks: readonly Block[], field: 'size' | 'requested'): number {
  return blocks.reduce((total, block) => total + block[field], 0);
}

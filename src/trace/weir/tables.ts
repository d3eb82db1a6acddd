// The tables of a file being read: what each index in the file refers to in memory, and whether it is valid.
// File and memory indices differ only if the writer stored a string, frame or stack twice; memory holds it once.
import { InputError } from '../../base/errors.ts';
import type { EventStore } from '../event-store.ts';
import { NO_STACK, Symbols } from '../symbols.ts';
import type { Annotation, OtherMemory, PoolId, RecordedLimits, Segment, SettingValue, Warning } from '../trace.ts';
import { AddressCodec, getU64 } from './numbers.ts';

/** What the file holds for one GPU. */
export interface DeviceTables {
  readonly device: number;
  readonly events: EventStore;
  readonly streams: number[];
  readonly pools: PoolId[];
  limits: RecordedLimits;
  otherMemory: OtherMemory | undefined;
  settings: ReadonlyMap<string, SettingValue> | undefined;
  readonly annotations: Annotation[];
  readonly warnings: Warning[];
  startSegments: readonly Segment[] | undefined;
  startIsWhole: boolean;
  endSegments: readonly Segment[] | undefined;
  /** Events read before `endSegments`. If more follow, the state is not the end. */
  eventsBeforeEnd: number;
}

export class FileTables {
  readonly symbols: Symbols = new Symbols();
  readonly addresses: AddressCodec = new AddressCodec(this.symbols.addresses);
  readonly devices: Map<number, DeviceTables> = new Map();
  readonly strings: number[] = [0];
  readonly frames: number[] = [];
  readonly stacks: number[] = [];
  /** Offset of the record being read, for messages. */
  record = 0;

  deviceAt(index: number): DeviceTables {
    return this.devices.get(index) ?? this.refuse(`refers to GPU ${index}, which no earlier record declares`);
  }

  stringAt(index: number): number {
    return this.strings[index] ?? this.refuse(`refers to string ${index}, but there are ${this.strings.length}`);
  }

  frameAt(index: number): number {
    return this.frames[index] ?? this.refuse(`refers to frame ${index}, but there are ${this.frames.length}`);
  }

  stackAt(index: number): number {
    if (index === NO_STACK) return NO_STACK;
    return this.stacks[index] ?? this.refuse(`refers to stack ${index}, but there are ${this.stacks.length}`);
  }

  streamAt(device: DeviceTables, index: number): number {
    if (index >= 0 && index < device.streams.length) return index;
    return this.refuse(`refers to stream ${index} of GPU ${device.device}, which has ${device.streams.length}`);
  }

  /** -1 means that the writer did not know the pool. */
  poolAt(device: DeviceTables, index: number): number {
    if (index >= -1 && index < device.pools.length) return index;
    return this.refuse(`refers to pool ${index} of GPU ${device.device}, which has ${device.pools.length}`);
  }

  bytesAt(view: DataView, at: number): number {
    const bytes = getU64(view, at);
    return bytes <= Number.MAX_SAFE_INTEGER ? bytes : this.refuse(`holds a size of ${bytes} bytes, which no machine has`);
  }

  refuse(complaint: string): never {
    throw new InputError(`the .weir file is not valid: its record at byte ${this.record} ${complaint}`);
  }
}

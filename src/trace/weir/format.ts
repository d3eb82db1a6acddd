// The layout of a `.weir` file, version 1; docs/trace-format.md describes it for writers in C.
//
//   file    header, then records; all numbers little-endian; every record begins at a multiple of 8
//   header  0 magic (8 bytes)   8 u16 major   10 u16 minor   12 u32 CRC-32 of the 12 bytes before
//   record  0 u32 CRC-32 of the rest of the record, padding included   4 u32 length of the payload
//           8 u16 type   10 u16 zero   12 u32 number of the record, from 0   16 payload, zeros up to a multiple of 8
//
// The CRC covers type and length too. Otherwise a flipped bit could turn events into an unknown type, which is skipped.
// A record refers only to earlier records, so a truncated file can be read up to its last whole record.
import { Format } from '../../abi/formats.ts';
import type { Annotation, BlockState } from '../trace.ts';

export const WEIR_MAGIC: Uint8Array = Uint8Array.from(Format.recording.magic, (character) => character.charCodeAt(0));
export const MAJOR_VERSION: number = Format.recording.version;
export const MINOR_VERSION: number = Format.recording.minor;
export const FILE_HEADER_BYTES = 16;
export const RECORD_HEADER_BYTES = 16;

/** Never renumber, only add: readers skip unknown types. */
export const RecordType = {
  /** JSON: the tool that wrote the file. Readers ignore it. */
  Meta: 1,
  /** Declares a GPU. Scope, then JSON: `RecordedLimits`. */
  Device: 2,
  /** Scope, then for each string a u32 length and that many bytes of UTF-8. String 0 is '' and is never written. */
  Strings: 3,
  /** Scope, then `FRAME_BYTES` each. */
  Frames: 4,
  /** Scope, then `STACK_BYTES` each. */
  Stacks: 5,
  /** Scope, then a u64 each: the handle, a pointer. */
  Streams: 6,
  /** Scope, then two u64 each: the pool's id. */
  Pools: 7,
  /** Scope, then JSON: the allocator's settings, by name. A later record replaces an earlier one. */
  Settings: 8,
  /** Scope, then JSON: `[[name, stage, device, microseconds], ...]`. */
  Annotations: 9,
  /** Scope, then JSON: `[[code, message], ...]`, warnings about the recording from before it was written here. */
  Warnings: 10,
  /** Scope, whose `first` is the number of segments, `SEGMENT_BYTES` each, then all their blocks, `BLOCK_BYTES` each. */
  State: 11,
  /** `EVENT_BYTES` each, nothing before them. */
  Events: 12,
  /** `END_BYTES`. Its presence means that the recording is complete. */
  End: 13,
  /** Scope, then JSON: `HostMemory`. Since format 1.2. */
  HostMemory: 14,
  /** Scope, then JSON: `OtherMemory`. Since format 1.3. */
  OtherMemory: 15,
} as const;
export type RecordType = (typeof RecordType)[keyof typeof RecordType];

/**
 * Most payloads begin with the scope: 0 u32 first index (number of entries in earlier records of this table) 4 u16
 * device   6 u16 flags.
 */
export const SCOPE_BYTES = 8;
/** As the device of a scope: all devices. */
export const EVERY_DEVICE = 0xffff;
/** c10::DeviceIndex is an int8_t; the rest is reserve. The limit keeps a hostile file from creating millions of traces. */
export const MAX_DEVICES = 1024;

/**
 * Flags in the scope of a state. A state is used only if its first and its last part are in the file. `Whole`, since format 1.3: a start
 * state with every live block and the stack of its request, so that nothing is older than what was recorded.
 */
export const StateFlag = { End: 1, FirstPart: 2, LastPart: 4, Whole: 8 } as const;

/** 0 u32 name   4 u32 filename (both strings)   8 i32 line. */
export const FRAME_BYTES = 12;
/** 0 i32 parent (a smaller stack, or -1)   4 u32 frame. */
export const STACK_BYTES = 8;
export const STREAM_BYTES = 8;
export const POOL_BYTES = 16;

/** 0 u64 address   8 u64 size   16 i32 stream   20 i32 pool   24 i32 stack   28 u32 flags   32 u32 blocks   36 u32 zero. */
export const SEGMENT_BYTES = 40;
export const SegmentFlag = { Small: 1, Expandable: 2 } as const;

/** 0 u64 address   8 u64 size   16 u64 requested   24 i32 stack   28 u32 state (index into `BLOCK_STATES`). */
export const BLOCK_BYTES = 32;
export const BLOCK_STATES: readonly BlockState[] = ['free', 'live', 'pending'];

export const ANNOTATION_STAGES: readonly Annotation['stage'][] = ['START', 'END', 'MARK'];

export { EVENT_BYTES, EventField, EventOffset } from '../../abi/events.ts';

/** 0 u64 events in the file   8 u32 records before this one   12 u32 zero. */
export const END_BYTES = 16;

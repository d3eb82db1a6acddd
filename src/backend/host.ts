// The backend of real memory on any Linux machine, without a GPU. One memfd holds all pages.
// A handle is a range of that file, so it can be mapped at several addresses, as on a GPU.
import { freemem } from 'node:os';
import { roundUp } from '../base/bytes.ts';
import { InputError, InvariantError } from '../base/errors.ts';
import { type Backend, DriverLedger, GRANULARITY, NO_MEMORY } from './backend.ts';
import { loadKoffi } from './ffi.ts';
import { Mappings } from './mappings.ts';
import type { TouchableMemory } from './memory.ts';

const PROT_NONE = 0;
const PROT_READ_WRITE = 3;
const MAP_SHARED = 1;
const MAP_PRIVATE = 2;
const MAP_FIXED = 0x10;
const MAP_ANONYMOUS = 0x20;
const MAP_NORESERVE = 0x4000;
const FALLOC_FL_KEEP_SIZE = 1;
const FALLOC_FL_PUNCH_HOLE = 2;
const FAILED = -1;

interface Libc {
  mmap(address: number, length: number, protection: number, flags: number, file: number, offset: number): number;
  munmap(address: number, length: number): number;
  mprotect(address: number, length: number, protection: number): number;
  memfd_create(name: string, flags: number): number;
  ftruncate(file: number, length: number): number;
  fallocate(file: number, mode: number, offset: number, length: number): number;
  close(file: number): number;
}

interface Handle {
  readonly offset: number;
  readonly bytes: number;
  /** Number of addresses it is mapped at. Memory is freed once the handle is released and mapped nowhere. */
  mappings: number;
  released: boolean;
}

export interface HostBackendOptions {
  /** Most memory to hold, in bytes. Default: half of the machine's free memory. */
  readonly capacity?: number | undefined;
}

export class HostBackend implements Backend, TouchableMemory {
  readonly name = 'host';
  readonly ledger: DriverLedger = new DriverLedger();
  readonly capacity: number;
  private readonly libc: Libc;
  private readonly file: number;
  private fileBytes = 0;
  private used = 0;
  private readonly handles: (Handle | undefined)[] = [];
  private readonly mallocs = new Map<number, number>();
  private readonly reservations = new Map<number, number>();
  private readonly mappings = new Mappings();

  constructor(options: HostBackendOptions = {}) {
    if (process.platform !== 'linux') throw new InputError('--backend host needs Linux (memfd); use --backend sim');
    this.capacity = options.capacity ?? Math.floor(freemem() / 2);
    this.libc = loadLibc();
    this.file = this.libc.memfd_create('weir', 0);
    if (this.file < 0) throw new InputError(`memfd_create failed with error ${loadKoffi().errno()}; use --backend sim`);
  }

  get usedBytes(): number {
    return this.used;
  }

  /** Releases all memory and addresses. The backend cannot be used afterwards. */
  close(): void {
    for (const [address, bytes] of [...this.mallocs, ...this.reservations]) this.libc.munmap(address, bytes);
    this.libc.close(this.file);
    this.mallocs.clear();
    this.reservations.clear();
  }

  malloc(bytes: number): number {
    return this.timed('malloc', () => {
      if (this.used + roundUp(bytes, GRANULARITY) > this.capacity) return NO_MEMORY;
      const address = this.libc.mmap(0, bytes, PROT_READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (address === FAILED) return NO_MEMORY;
      this.used += roundUp(bytes, GRANULARITY);
      this.mallocs.set(address, bytes);
      return address;
    });
  }

  free(address: number, bytes: number): void {
    this.timed('free', () => {
      if (this.mallocs.get(address) !== bytes) throw new InvariantError(`cannot free ${bytes} bytes at ${address}: no such allocation`);
      this.mallocs.delete(address);
      this.used -= roundUp(bytes, GRANULARITY);
      return this.libc.munmap(address, bytes);
    });
  }

  reserve(bytes: number, wanted?: number): number {
    return this.timed('reserve', () => {
      const address = this.libc.mmap(wanted ?? 0, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (address === FAILED) return NO_MEMORY;
      this.reservations.set(address, bytes);
      return address;
    });
  }

  unreserve(address: number, bytes: number): boolean {
    return this.timed('reserve', () => {
      if (this.reservations.get(address) !== bytes) return false;
      this.reservations.delete(address);
      return this.libc.munmap(address, bytes) === 0;
    });
  }

  create(bytes: number): number {
    return this.timed('create', () => {
      if (bytes <= 0 || bytes % GRANULARITY !== 0 || this.used + bytes > this.capacity) return NO_MEMORY;
      // Offsets are never reused, so a stale mapping cannot show another handle's data. The file is sparse.
      const offset = this.fileBytes;
      if (this.libc.ftruncate(this.file, offset + bytes) !== 0) return NO_MEMORY;
      if (this.libc.fallocate(this.file, 0, offset, bytes) !== 0) return NO_MEMORY;
      this.fileBytes = offset + bytes;
      this.used += bytes;
      return this.handles.push({ offset, bytes, mappings: 0, released: false }) - 1;
    });
  }

  release(handle: number): boolean {
    return this.timed('release', () => {
      const held = this.handles[handle];
      if (!held || held.released) return false;
      held.released = true;
      this.giveBackIfUnused(handle, held);
      return true;
    });
  }

  map(address: number, handle: number): boolean {
    return this.timed('map', () => {
      const held = this.handles[handle];
      if (!held || held.released || this.mappings.has(address)) return false;
      const mapped = this.libc.mmap(address, held.bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, this.file, held.offset);
      if (mapped === FAILED) return false;
      held.mappings++;
      this.mappings.add(address, handle, held.bytes);
      return true;
    });
  }

  setAccess(address: number, bytes: number): boolean {
    return this.timed(
      'setAccess',
      () => this.mappings.tiling(address, bytes) !== undefined && this.libc.mprotect(address, bytes, PROT_READ_WRITE) === 0,
    );
  }

  unmap(address: number, bytes: number): boolean {
    return this.timed('unmap', () => {
      const starts = this.mappings.tiling(address, bytes);
      if (!starts) return false;
      // An empty mapping replaces the memory, so the addresses stay reserved.
      const emptied = this.libc.mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
      if (emptied === FAILED) return false;
      for (const start of starts) {
        const handle = this.mappings.remove(start);
        const held = this.handles[handle]!;
        held.mappings--;
        this.giveBackIfUnused(handle, held);
      }
      return true;
    });
  }

  fill(address: number, bytes: number, word: number): void {
    new Uint32Array(loadKoffi().view(BigInt(address), bytes)).fill(word >>> 0);
  }

  readWord(address: number): number {
    return new Uint32Array(loadKoffi().view(BigInt(address), 4))[0]!;
  }

  private giveBackIfUnused(handle: number, held: Handle): void {
    if (!held.released || held.mappings > 0) return;
    this.libc.fallocate(this.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, held.offset, held.bytes);
    this.used -= held.bytes;
    this.handles[handle] = undefined;
  }

  private timed<Result>(call: Parameters<DriverLedger['charge']>[0], act: () => Result): Result {
    const started = performance.now();
    const result = act();
    this.ledger.charge(call, (performance.now() - started) * 1000);
    return result;
  }
}

let loaded: Libc | undefined;

function loadLibc(): Libc {
  if (loaded) return loaded;
  const library = loadKoffi().load('libc.so.6');
  loaded = {
    mmap: library.func('intptr_t mmap(intptr_t, size_t, int, int, int, int64_t)'),
    munmap: library.func('int munmap(intptr_t, size_t)'),
    mprotect: library.func('int mprotect(intptr_t, size_t, int)'),
    memfd_create: library.func('int memfd_create(const char *, uint32_t)'),
    ftruncate: library.func('int ftruncate(int, int64_t)'),
    fallocate: library.func('int fallocate(int, int, int64_t, int64_t)'),
    close: library.func('int close(int)'),
  } as unknown as Libc;
  return loaded;
}

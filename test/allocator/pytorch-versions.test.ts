// Which of several free blocks of one size PyTorch takes depends on its version. Shown on the allocator itself, and by
// recordings that do not name the version they were made with.
import { describe, expect, it } from 'vitest';
import { PyTorchAllocator } from '../../src/allocator/pytorch/allocator.ts';
import { DEFAULT_SETTINGS } from '../../src/allocator/pytorch/settings.ts';
import { parseVersion, recordedRules, VERSION_SETTING } from '../../src/allocator/pytorch/versions.ts';
import { SimulatedBackend } from '../../src/backend/simulated.ts';
import { MIB } from '../../src/base/bytes.ts';
import { reconstruct } from '../../src/replay/reconstruct.ts';
import { RecordedPlacement } from '../../src/replay/recorded-placement.ts';
import { EventKind } from '../../src/trace/trace.ts';
import { type ForgedEvent, forgeTrace } from '../support/forged.ts';

const HIGH = 1024 * MIB;
const LOW = 512 * MIB;
const rulesOf = (version: string) => recordedRules(new Map([[VERSION_SETTING, version]]))!;

function allocatorOf(version: string, addresses: readonly number[]): PyTorchAllocator {
  const placement = new RecordedPlacement();
  for (const address of [...addresses].reverse()) placement.expect(address, 20 * MIB, false);
  return new PyTorchAllocator({ backend: new SimulatedBackend({ placement }), streams: [0], rules: rulesOf(version) }, DEFAULT_SETTINGS);
}

function end(allocator: PyTorchAllocator, block: number): void {
  allocator.free(block);
  allocator.complete(block);
}

/** Two segments, the first at the higher address, and in each the same piece of free memory. */
function betweenSegments(version: string): number {
  const allocator = allocatorOf(version, [HIGH, LOW]);
  const request = (mib: number) => allocator.malloc(mib * MIB, 0, 0);
  const first = request(4);
  request(6);
  request(9.5);
  const second = request(4);
  request(6);
  request(9.5);
  end(allocator, first);
  end(allocator, second);
  return allocator.addressOf(request(4));
}

/** One segment in which the free block at the lower address was split off later. */
function betweenBlocks(version: string): number {
  const allocator = allocatorOf(version, [HIGH]);
  const request = (mib: number) => allocator.malloc(mib * MIB, 0, 0);
  const large = request(4);
  request(2);
  const old = request(2);
  request(2);
  end(allocator, large);
  const young = request(2);
  request(2);
  end(allocator, young);
  end(allocator, old);
  return allocator.addressOf(request(2)) - HIGH;
}

describe('of free blocks of one size', () => {
  it.each([
    ['2.6', LOW, 0],
    ['2.11.0', LOW, 0],
    ['2.12.1', HIGH, 6 * MIB],
    ['2.13.0+cu130', HIGH, 0],
    ['2.14', HIGH, 0],
  ])('PyTorch %s takes the one that its version prefers', (version, segment, block) => {
    expect(betweenSegments(version)).toBe(segment);
    expect(betweenBlocks(version)).toBe(block);
  });
});

function forged(last: number, version?: string) {
  const rows: ForgedEvent[] = [];
  const add = (kind: EventKind, address: number, mib: number) => rows.push({ kind, address, size: mib * MIB });
  for (const base of [HIGH, LOW]) {
    add(EventKind.SegmentAlloc, base, 20);
    add(EventKind.Alloc, base, 4);
    add(EventKind.Alloc, base + 4 * MIB, 6);
    add(EventKind.Alloc, base + 10 * MIB, 9.5);
  }
  for (const base of [HIGH, LOW]) {
    add(EventKind.FreeRequested, base, 4);
    add(EventKind.FreeCompleted, base, 4);
  }
  add(EventKind.Alloc, last, 4);
  return forgeTrace(rows, version === undefined ? {} : { settings: new Map([[VERSION_SETTING, version]]) });
}

describe('a recording', () => {
  it('that names no version is matched by trying', () => {
    const matched = reconstruct(forged(HIGH));
    expect(matched.differences.addresses).toBe(0);
    expect(matched.rulesOrigin).toBe('matched');
    expect(matched.rules.takesFirst).not.toBe('lowest address');
    expect(reconstruct(forged(LOW))).toMatchObject({ rulesOrigin: 'assumed', rules: { takesFirst: 'lowest address' } });
  });

  it('that names its version is held to it', () => {
    expect(reconstruct(forged(HIGH, '2.13.0')).differences.addresses).toBe(0);
    expect(reconstruct(forged(LOW, '2.13.0'))).toMatchObject({ rulesOrigin: 'recorded', differences: { addresses: 1 } });
    expect(reconstruct(forged(HIGH, '2.11.0')).differences.addresses).toBe(1);
  });
});

it('refuses what is no version', () => {
  for (const text of ['', '3.0', '2', '2.x', 'latest']) expect(() => parseVersion(text)).toThrow(/is not a version of PyTorch/);
});

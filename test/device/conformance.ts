// What every device must do. Plain functions over node:assert, so that a machine with a GPU and nothing but Node runs
// the same suite (test/gpu/main.ts) as the tests here.
import assert from 'node:assert/strict';
import { type Device, NO_MEMORY } from '../../src/device/device.ts';
import { isTouchable } from '../../src/device/memory.ts';

const MIB = 2 ** 20;
const UNIT = 2 * MIB;

export interface DeviceCheck {
  readonly title: string;
  /** Is given a device that holds nothing and has room for 64 MiB. */
  run(device: Device): void;
}

/** Handles of these sizes, and a range of addresses that holds them all. */
function setUp(device: Device, sizes: readonly number[]): { handles: number[]; base: number; bytes: number } {
  const bytes = sizes.reduce((sum, size) => sum + size, 0);
  const handles = sizes.map((size) => device.create(size));
  assert.ok(handles.every((handle) => handle !== NO_MEMORY));
  const base = device.reserve(bytes);
  assert.notEqual(base, NO_MEMORY);
  return { handles, base, bytes };
}

function mapAll(device: Device, base: number, handles: readonly number[], sizes: readonly number[]): void {
  let at = base;
  handles.forEach((handle, index) => {
    assert.equal(device.map(at, handle), true);
    at += sizes[index]!;
  });
  assert.equal(device.setAccess(base, at - base), true);
}

const SIZES = [UNIT, 4 * UNIT, UNIT, 2 * UNIT];

export const DEVICE_CHECKS: readonly DeviceCheck[] = [
  {
    title: 'counts the memory it holds and gives all of it back',
    run(device) {
      const before = device.usedBytes;
      const { handles, base, bytes } = setUp(device, SIZES);
      assert.equal(device.usedBytes - before, bytes);
      mapAll(device, base, handles, SIZES);
      assert.equal(device.usedBytes - before, bytes);
      assert.equal(device.unmap(base, bytes), true);
      for (const handle of handles) assert.equal(device.release(handle), true);
      assert.equal(device.unreserve(base, bytes), true);
      assert.equal(device.usedBytes, before);
    },
  },
  {
    title: 'has no more memory than its capacity, and is unchanged by a request that fails',
    run(device) {
      const before = device.usedBytes;
      assert.equal(device.create(2 ** 50), NO_MEMORY);
      assert.equal(device.malloc(2 ** 50), NO_MEMORY);
      assert.equal(device.usedBytes, before);
      const address = device.malloc(3 * MIB);
      assert.notEqual(address, NO_MEMORY);
      device.free(address, 3 * MIB);
      assert.equal(device.usedBytes, before);
    },
  },
  {
    title: 'counts and times every call',
    run(device) {
      const before = { ...device.ledger.calls };
      const time = device.ledger.timeUs;
      const { handles, base, bytes } = setUp(device, SIZES);
      mapAll(device, base, handles, SIZES);
      device.unmap(base, bytes);
      for (const handle of handles) device.release(handle);
      device.unreserve(base, bytes);
      const made = Object.fromEntries(
        Object.entries(device.ledger.calls).map(([call, count]) => [call, count - before[call as keyof typeof before]]),
      );
      assert.deepEqual(made, { create: 4, release: 4, reserve: 2, map: 4, setAccess: 1, unmap: 1, malloc: 0, free: 0 });
      assert.ok(device.ledger.timeUs > time);
    },
  },
  {
    title: 'shows the same memory through every mapping of a handle, in any order',
    run(device) {
      const { handles, base, bytes } = setUp(device, SIZES);
      mapAll(device, base, handles, SIZES);
      const reversed = device.reserve(bytes);
      mapAll(device, reversed, [...handles].reverse(), [...SIZES].reverse());
      if (isTouchable(device)) {
        let at = base;
        SIZES.forEach((size, index) => {
          device.fill(at, size, 0x1000 + index);
          at += size;
        });
        at = reversed;
        for (const index of [3, 2, 1, 0]) {
          for (let offset = 0; offset < SIZES[index]!; offset += 512 * 1024) assert.equal(device.readWord(at + offset), 0x1000 + index);
          assert.equal(device.readWord(at + SIZES[index]! - 4), 0x1000 + index);
          at += SIZES[index]!;
        }
      }
      device.unmap(base, bytes);
      device.unmap(reversed, bytes);
      for (const handle of handles) device.release(handle);
      device.unreserve(base, bytes);
      device.unreserve(reversed, bytes);
    },
  },
  {
    title: 'keeps what a handle holds when one of its mappings goes, and when it is stitched anew',
    run(device) {
      const { handles, base, bytes } = setUp(device, SIZES);
      mapAll(device, base, handles, SIZES);
      const view = device.reserve(6 * UNIT);
      mapAll(device, view, [handles[1]!, handles[3]!], [4 * UNIT, 2 * UNIT]);
      if (isTouchable(device)) device.fill(view, 6 * UNIT, 0xabcd);
      device.unmap(view, 6 * UNIT);
      mapAll(device, view, [handles[3]!, handles[1]!], [2 * UNIT, 4 * UNIT]);
      if (isTouchable(device)) {
        for (let offset = 0; offset < 6 * UNIT; offset += UNIT) assert.equal(device.readWord(view + offset), 0xabcd);
        assert.equal(device.readWord(base + UNIT), 0xabcd);
        device.fill(base, UNIT, 7);
        assert.equal(device.readWord(base + UNIT), 0xabcd);
      }
      device.unmap(base, bytes);
      device.unmap(view, 6 * UNIT);
      for (const handle of handles) device.release(handle);
      device.unreserve(base, bytes);
      device.unreserve(view, 6 * UNIT);
    },
  },
  {
    title: 'never does what cannot be done: mapping over a mapping, unmapping or setting access where nothing is',
    run(device) {
      const { handles, base, bytes } = setUp(device, [UNIT, UNIT]);
      assert.equal(device.map(base, handles[0]!), true);
      refuses(() => device.map(base, handles[1]!));
      refuses(() => device.setAccess(base, 2 * UNIT));
      refuses(() => device.unmap(base + UNIT, UNIT));
      refuses(() => device.release(handles[1]! + 1000));
      device.unmap(base, UNIT);
      for (const handle of handles) device.release(handle);
      device.unreserve(base, bytes);
    },
  },
];

/** A real device says no; the simulated one takes it for a defect and throws. */
function refuses(act: () => boolean): void {
  let done = false;
  try {
    done = act();
  } catch {}
  assert.equal(done, false);
}

// What every backend must do. Plain functions over node:assert: a GPU machine that has only Node runs the same suite
// (test/gpu/main.ts).
import assert from 'node:assert/strict';
import { type Backend, NO_MEMORY } from '../../src/backend/backend.ts';
import { isTouchable } from '../../src/backend/memory.ts';

const MIB = 2 ** 20;
const UNIT = 2 * MIB;

export interface BackendCheck {
  readonly title: string;
  /** Gets a backend that holds nothing and has room for 64 MiB. */
  run(backend: Backend): void;
}

/** Creates handles of these sizes, and reserves an address range for all of them. */
function setUp(backend: Backend, sizes: readonly number[]): { handles: number[]; base: number; bytes: number } {
  const bytes = sizes.reduce((sum, size) => sum + size, 0);
  const handles = sizes.map((size) => backend.create(size));
  assert.ok(handles.every((handle) => handle !== NO_MEMORY));
  const base = backend.reserve(bytes);
  assert.notEqual(base, NO_MEMORY);
  return { handles, base, bytes };
}

function mapAll(backend: Backend, base: number, handles: readonly number[], sizes: readonly number[]): void {
  let at = base;
  handles.forEach((handle, index) => {
    assert.equal(backend.map(at, handle), true);
    at += sizes[index]!;
  });
  assert.equal(backend.setAccess(base, at - base), true);
}

const SIZES = [UNIT, 4 * UNIT, UNIT, 2 * UNIT];

export const DEVICE_CHECKS: readonly BackendCheck[] = [
  {
    title: 'counts the memory it holds and gives all of it back',
    run(backend) {
      const before = backend.usedBytes;
      const { handles, base, bytes } = setUp(backend, SIZES);
      assert.equal(backend.usedBytes - before, bytes);
      mapAll(backend, base, handles, SIZES);
      assert.equal(backend.usedBytes - before, bytes);
      assert.equal(backend.unmap(base, bytes), true);
      for (const handle of handles) assert.equal(backend.release(handle), true);
      assert.equal(backend.unreserve(base, bytes), true);
      assert.equal(backend.usedBytes, before);
    },
  },
  {
    title: 'has no more memory than its capacity, and is unchanged by a request that fails',
    run(backend) {
      const before = backend.usedBytes;
      assert.equal(backend.create(2 ** 50), NO_MEMORY);
      assert.equal(backend.malloc(2 ** 50), NO_MEMORY);
      assert.equal(backend.usedBytes, before);
      const address = backend.malloc(3 * MIB);
      assert.notEqual(address, NO_MEMORY);
      backend.free(address, 3 * MIB);
      assert.equal(backend.usedBytes, before);
    },
  },
  {
    title: 'counts and times every call',
    run(backend) {
      const before = { ...backend.ledger.calls };
      const time = backend.ledger.timeUs;
      const { handles, base, bytes } = setUp(backend, SIZES);
      mapAll(backend, base, handles, SIZES);
      backend.unmap(base, bytes);
      for (const handle of handles) backend.release(handle);
      backend.unreserve(base, bytes);
      const made = Object.fromEntries(
        Object.entries(backend.ledger.calls).map(([call, count]) => [call, count - before[call as keyof typeof before]]),
      );
      assert.deepEqual(made, { create: 4, release: 4, reserve: 2, map: 4, setAccess: 1, unmap: 1, malloc: 0, free: 0 });
      assert.ok(backend.ledger.timeUs > time);
    },
  },
  {
    title: 'shows the same memory through every mapping of a handle, in any order',
    run(backend) {
      const { handles, base, bytes } = setUp(backend, SIZES);
      mapAll(backend, base, handles, SIZES);
      const reversed = backend.reserve(bytes);
      mapAll(backend, reversed, [...handles].reverse(), [...SIZES].reverse());
      if (isTouchable(backend)) {
        let at = base;
        SIZES.forEach((size, index) => {
          backend.fill(at, size, 0x1000 + index);
          at += size;
        });
        at = reversed;
        for (const index of [3, 2, 1, 0]) {
          for (let offset = 0; offset < SIZES[index]!; offset += 512 * 1024) assert.equal(backend.readWord(at + offset), 0x1000 + index);
          assert.equal(backend.readWord(at + SIZES[index]! - 4), 0x1000 + index);
          at += SIZES[index]!;
        }
      }
      backend.unmap(base, bytes);
      backend.unmap(reversed, bytes);
      for (const handle of handles) backend.release(handle);
      backend.unreserve(base, bytes);
      backend.unreserve(reversed, bytes);
    },
  },
  {
    title: 'keeps what a handle holds when one of its mappings goes, and when it is stitched anew',
    run(backend) {
      const { handles, base, bytes } = setUp(backend, SIZES);
      mapAll(backend, base, handles, SIZES);
      const view = backend.reserve(6 * UNIT);
      mapAll(backend, view, [handles[1]!, handles[3]!], [4 * UNIT, 2 * UNIT]);
      if (isTouchable(backend)) backend.fill(view, 6 * UNIT, 0xabcd);
      backend.unmap(view, 6 * UNIT);
      mapAll(backend, view, [handles[3]!, handles[1]!], [2 * UNIT, 4 * UNIT]);
      if (isTouchable(backend)) {
        for (let offset = 0; offset < 6 * UNIT; offset += UNIT) assert.equal(backend.readWord(view + offset), 0xabcd);
        assert.equal(backend.readWord(base + UNIT), 0xabcd);
        backend.fill(base, UNIT, 7);
        assert.equal(backend.readWord(base + UNIT), 0xabcd);
      }
      backend.unmap(base, bytes);
      backend.unmap(view, 6 * UNIT);
      for (const handle of handles) backend.release(handle);
      backend.unreserve(base, bytes);
      backend.unreserve(view, 6 * UNIT);
    },
  },
  {
    title: 'never does what cannot be done: mapping over a mapping, unmapping or setting access where nothing is',
    run(backend) {
      const { handles, base, bytes } = setUp(backend, [UNIT, UNIT]);
      assert.equal(backend.map(base, handles[0]!), true);
      refuses(() => backend.map(base, handles[1]!));
      refuses(() => backend.setAccess(base, 2 * UNIT));
      refuses(() => backend.unmap(base + UNIT, UNIT));
      refuses(() => backend.release(handles[1]! + 1000));
      backend.unmap(base, UNIT);
      for (const handle of handles) backend.release(handle);
      backend.unreserve(base, bytes);
    },
  },
];

/** A real backend returns false. The simulated one treats it as a defect and throws. */
function refuses(act: () => boolean): void {
  let done = false;
  try {
    done = act();
  } catch {}
  assert.equal(done, false);
}

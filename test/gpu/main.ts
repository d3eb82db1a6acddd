// `npm run test:gpu`: the CUDA backend through the conformance suite, and allocators on real GPU memory with every block
// filled and looked at again. Needs a GPU and Node, and nothing else.
import { OUT_OF_MEMORY } from '../../src/allocator/allocator.ts';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { CudaBackend } from '../../src/backend/cuda.ts';
import { VerifyingAllocator } from '../../src/replay/verifying-allocator.ts';
import { DEVICE_CHECKS } from '../backend/conformance.ts';

const MIB = 2 ** 20;
const GIB = 2 ** 30;
let passed = 0;
let failed = 0;

function test(title: string, run: () => string | undefined): void {
  try {
    const said = run();
    passed++;
    console.log(`ok    ${title}${said ? `: ${said}` : ''}`);
  } catch (error) {
    failed++;
    console.log(`FAIL  ${title}\n${error instanceof Error ? error.stack : String(error)}`);
  }
}

const probe = new CudaBackend();
const { free, total } = probe.memoryInfo();
console.log(`${probe.gpuName}, CUDA driver ${probe.driverVersion}, ${(total / GIB).toFixed(1)} GiB, ${(free / GIB).toFixed(1)} GiB free`);
probe.close();

for (const check of DEVICE_CHECKS) {
  test(`a CUDA backend ${check.title}`, () => {
    const backend = new CudaBackend({ capacity: 64 * MIB });
    try {
      check.run(backend);
      return undefined;
    } finally {
      backend.close();
    }
  });
}

for (const choice of chooseAllocators('pytorch,expandable,gmlake[minStitch:2MiB],weir')) {
  test(`${choice.name} under random requests on real memory`, () => {
    const capacity = 12 * GIB;
    const backend = new CudaBackend({ capacity });
    const waiting: number[] = [];
    const allocator = new VerifyingAllocator(
      choice.create({ backend, streams: [0, 1, 2], deviceBytes: capacity, synchronize: () => waiting.splice(0) }),
      backend,
      2 * MIB,
    );
    try {
      const random = generator(7);
      const live: number[] = [];
      let failures = 0;
      for (let step = 0; step < 4000; step++) {
        if (live.length > 0 && (random() < 0.45 || live.length > 200)) {
          const [block] = live.splice(Math.floor(random() * live.length), 1);
          allocator.free(block!);
          allocator.complete(block!);
        } else {
          const block = allocator.malloc(Math.ceil(2 ** (9 + random() * 20.5)), Math.floor(random() * 3), 0);
          if (block === OUT_OF_MEMORY) failures++;
          else live.push(block);
        }
        if (step % 500 === 0) allocator.check();
      }
      allocator.check();
      for (const block of live) {
        allocator.free(block);
        allocator.complete(block);
      }
      allocator.emptyCache();
      if (backend.usedBytes !== 0) throw new Error(`${backend.usedBytes} bytes were not given back`);
      const { blocks, bytes, words } = allocator.verification;
      const { calls, timeUs } = backend.ledger;
      return `${blocks} blocks, ${(bytes / GIB).toFixed(0)} GiB filled, ${words} words read back, ${failures} requests failed, ${calls.map} maps, ${(timeUs / 1000).toFixed(0)} ms in the driver`;
    } finally {
      backend.close();
    }
  });
}

test('all memory went back to the GPU', () => {
  const backend = new CudaBackend();
  const left = free - backend.memoryInfo().free;
  backend.close();
  if (left > 64 * MIB) throw new Error(`${left} bytes are missing`);
  return undefined;
});

console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;

function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 4294967296;
  };
}

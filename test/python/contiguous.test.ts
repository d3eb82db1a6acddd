// weir_gpu.contiguous() without a GPU: which pools it opens, on a stand-in for PyTorch that refuses what PyTorch refuses.
// On a GPU: `contiguous_memory` in test/gpu/torch/features_processes.py.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const PYTHON = 'python3';
const found = spawnSync(PYTHON, ['-c', 'import sys; sys.exit(sys.version_info < (3, 9))']);
const reason = found.status === 0 ? undefined : 'no Python 3.9 or newer';

const FAKE_TORCH = `
import contextlib, os, types
class device:
    def __init__(self, text): self.index = int(text.split(":")[1]) if ":" in text else None
cuda = types.SimpleNamespace(gpu=0, log=[], opened=set())
cuda.is_available = lambda: not os.environ.get("FAKE_NO_GPU")
cuda.current_device = lambda: cuda.gpu
@contextlib.contextmanager
def on(index):
    before, cuda.gpu = cuda.gpu, index
    try: yield
    finally: cuda.gpu = before
cuda.device = on
class MemPool:
    def __init__(self, allocator=None, use_on_oom=False):
        self.device, self.number = cuda.gpu, sum(entry[0] == "made" for entry in cuda.log)
        cuda.log.append(["made", self.number, self.device, allocator, use_on_oom])
    def __del__(self): print("a pool was taken down")
@contextlib.contextmanager
def use_mem_pool(pool, index):
    assert pool.device == index and pool not in cuda.opened, "already recording to mempool_id"
    cuda.opened.add(pool)
    cuda.log.append(["open", pool.number])
    try: yield
    finally:
        cuda.opened.discard(pool)
        cuda.log.append(["closed", pool.number])
cuda.MemPool, cuda.use_mem_pool = MemPool, use_mem_pool
class Pluggable:
    def __init__(self, *names): self.names = names
    def allocator(self): return list(self.names)
settings = {"allocator_settings": {"expandable_segments": bool(os.environ.get("FAKE_EXPANDABLE"))}}
cuda.memory = types.SimpleNamespace(_snapshot=lambda: settings, CUDAPluggableAllocator=Pluggable)
`;

describe.skipIf(reason !== undefined)(`contiguous memory${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'weir-contiguous-'));
    mkdirSync(join(folder, 'fake/torch'), { recursive: true });
    writeFileSync(join(folder, 'fake/torch/__init__.py'), FAKE_TORCH);
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  function python(script: string, variables: Record<string, string> = {}, withTorch = true) {
    const PYTHONPATH = [resolve('python'), ...(withTorch ? [join(folder, 'fake')] : [])].join(':');
    const env = { ...process.env, PYTHONPATH, PYTHONDONTWRITEBYTECODE: '1', ...variables };
    const result = spawnSync(PYTHON, ['-c', script], { env, encoding: 'utf8' });
    expect(result).toMatchObject({ status: 0, stderr: '' });
    return result.stdout.trim();
  }

  /** What PyTorch was asked, in order. */
  function log(body: string, variables: Record<string, string> = {}) {
    const script = `import json, sys, weir_gpu\nassert "torch" not in sys.modules\nimport torch\n${body}\nprint(json.dumps(torch.cuda.log))`;
    return JSON.parse(python(script, variables));
  }

  test('nested blocks open one pool, which serves later blocks too', () => {
    const body = `
with weir_gpu.contiguous():
    with weir_gpu.contiguous(0): pass
    assert torch.cuda.opened
assert not torch.cuda.opened
with weir_gpu.contiguous(): pass`;
    expect(log(body)).toEqual([
      ['made', 0, 0, null, true],
      ['open', 0],
      ['closed', 0],
      ['open', 0],
      ['closed', 0],
    ]);
  });

  test('each GPU has its own', () => {
    const body = `
with weir_gpu.contiguous(), weir_gpu.contiguous("cuda:1"): pass
torch.cuda.gpu = 1
with weir_gpu.contiguous("cuda"): pass`;
    const order = [
      ['made', 0, 0, null, true],
      ['open', 0],
      ['made', 1, 1, null, true],
      ['open', 1],
      ['closed', 1],
      ['closed', 0],
    ];
    expect(log(body)).toEqual([...order, ['open', 1], ['closed', 1]]);
  });

  test('threads at the same time have pools of their own', () => {
    const body = `
import threading
def work(): 
    with weir_gpu.contiguous(): pass
with weir_gpu.contiguous():
    for _ in range(2):
        thread = threading.Thread(target=work); thread.start(); thread.join()`;
    const once = [
      ['open', 1],
      ['closed', 1],
    ];
    const made = (number: number) => ['made', number, 0, null, true];
    expect(log(body)).toEqual([made(0), ['open', 0], made(1), ...once, ...once, ['closed', 0]]);
  });

  test('an error inside closes it', () => {
    const body = `
for _ in range(2):
    try:
        with weir_gpu.contiguous(): raise KeyError("mine")
    except KeyError: pass`;
    expect(log(body)).toEqual([
      ['made', 0, 0, null, true],
      ['open', 0],
      ['closed', 0],
      ['open', 0],
      ['closed', 0],
    ]);
  });

  test('expandable segments are no plain allocations', () => {
    const plain = 'try:\n  with weir_gpu.contiguous(): pass\nexcept RuntimeError as error: torch.cuda.log.append(str(error))';
    expect(log(plain, { FAKE_EXPANDABLE: '1' })).toEqual([
      expect.stringMatching(/^weir_gpu.contiguous\(\): .*set expandable_segments:False in PYTORCH_ALLOC_CONF, or start .* with weir run$/),
    ]);
    // Weir's adapter offers an allocator for the pool, and knows whether that is needed.
    for (const expandable of [1, 0]) {
      const body = `
import types
from weir_gpu import adapter
library = types.SimpleNamespace(_name="/cache/libweir.so", weir_torch_expandable=lambda: ${expandable})
adapter.library = lambda: library
with weir_gpu.contiguous(): pass`;
      const allocator = ['/cache/libweir.so', 'weir_torch_plain_alloc', 'weir_torch_plain_free'];
      expect(log(body)[0]).toEqual(['made', 0, 0, expandable ? allocator : null, true]);
    }
  });

  test('without PyTorch or a GPU nothing happens', () => {
    const script = 'import weir_gpu\nwith weir_gpu.contiguous(): print("good")';
    expect(python(script, {}, false)).toBe('good');
    expect(log('with weir_gpu.contiguous(): pass', { FAKE_NO_GPU: '1' })).toEqual([]);
  });
});

// What a failed compilation of the adapter is told to mean: the words of GCC and Clang, without a compiler. headers.test.ts has the
// same with real compilers.
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { describe, expect, test } from 'vitest';

const found = spawnSync('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 9))']);
const reason = found.status === 0 ? '' : ' (skipped: no Python 3.9 or newer)';

const SCRIPT = `
import sys
from weir_gpu import compile_error
print(compile_error.sentence(sys.stdin.read(), "2.15.0", "c++ ended with 1", "/cache/build.log", "native"))
`;

function told(log: string): string {
  const env = { ...process.env, PYTHONPATH: resolve('python'), PYTHONDONTWRITEBYTECODE: '1' };
  const { stdout, stderr } = spawnSync('python3', ['-c', SCRIPT], { env, input: log, encoding: 'utf8' });
  return stdout.trimEnd() || stderr;
}

const lines = readFileSync('native/torch/versions/functions.h', 'utf8').split('\n');
const line = lines.findIndex((text) => text.includes(', setNoSplit,')) + 1;
const BEFORE = "weir: before releasePool PyTorch's allocator has a function that Weir does not know, or lacks one";
const DEMANDED = "static assertion failed: weir: PyTorch's allocator demands a function that Weir does not know";
const LOGS: readonly (readonly [what: string, log: string, difference: string])[] = [
  [
    'GCC: a function that is new',
    `x/versions/interface.h:9:1: error: call to 'weir::weir_allocator_of_pytorch_differs_3' declared with attribute error: ${BEFORE}\n`,
    'a function before releasePool is new, gone or in another place',
  ],
  [
    'Clang: a function that is new',
    `x/versions/interface.h:9:1: error: call to 'weir::weir_allocator_of_pytorch_differs_3' declared with 'error' attribute: ${BEFORE}\n`,
    'a function before releasePool is new, gone or in another place',
  ],
  [
    'GCC: a function that is asked for',
    `x/interface.h:5:1: error: ${DEMANDED}\nx/a.h:1:7: note:   because the following virtual functions are pure within 'weir::A':\n` +
      "x/b.h:2:3: note:     'virtual void c10::cuda::CUDACachingAllocator::CUDAAllocator::fresh(int)'\n",
    'its function fresh is new',
  ],
  [
    'Clang: a function that is asked for',
    `x/interface.h:5:1: error: ${DEMANDED}\nx/b.h:2:3: note: unimplemented pure virtual method 'fresh' in 'WeirAllocator'\n`,
    'its function fresh is new',
  ],
  [
    'GCC: a function that changed',
    `native/torch/versions/functions.h:${line}:13: error: 'void weir::Interface::setNoSplit()' marked 'override', but does not override\n`,
    'its function setNoSplit has changed',
  ],
  [
    'Clang: a function that changed',
    `native/torch/versions/functions.h:${line}:13: error: non-virtual member function marked 'override' hides virtual member function\n`,
    'its function setNoSplit has changed',
  ],
];

describe.skipIf(reason !== '')(`a failed compilation${reason}`, () => {
  test.each(LOGS)('%s', (_, log, difference) => {
    const advice = "update Weir, or use PyTorch 2.6 to 2.14 as released; the compiler's words are in /cache/build.log";
    expect(told(log)).toBe(`PyTorch 2.15.0 has an allocator that this version of Weir does not know (${difference}); ${advice}`);
  });

  test('another reason is left to the log', () => {
    expect(told('x.c:1:1: fatal error: stdio.h: No such file or directory\n')).toBe(
      "Weir's adapter could not be compiled (c++ ended with 1); the compiler's words are in /cache/build.log",
    );
    expect(told('x: error: #error "weir: this PyTorch is older than any that Weir knows"\n')).toBe(
      'PyTorch 2.15.0 is older than any that this version of Weir knows (2.6 to 2.14)',
    );
  });
});

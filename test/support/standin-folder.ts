// The stand-in GPU as a folder: the compiled adapter on host memory, and a folder named torch that does what Weir needs of it.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { run as compile, compileParts, compilerOf } from '../../scripts/native-rules.mjs';

const PACKAGE = resolve('dist/python');
const SOURCES = resolve('test/python/standin');

/** As PyTorch: its import ends with the entry points, and CUDA starts at its first use, with what was queued for that. */
const FAKE_TORCH = `
import os, types
class version: cuda = os.environ.get("FAKE_CUDA", "13.0") or None
class _C: _GLIBCXX_USE_CXX11_ABI = True
__version__ = os.environ.get("FAKE_VERSION", "2.11.0+cu130")
cuda = types.ModuleType("torch.cuda")
cuda._initialized, cuda._queued_calls = False, []
cuda.is_initialized = lambda: cuda._initialized
cuda._is_in_bad_fork = lambda: bool(os.environ.get("FAKE_BAD_FORK"))
def _lazy_call(call, **kwargs):
    if cuda._initialized: call()
    else: cuda._queued_calls.append((call, []))
cuda._lazy_call = _lazy_call
if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
    import sys
    from importlib.metadata import entry_points
    old = sys.version_info < (3, 10)
    for entry in entry_points().get("torch.backends", ()) if old else entry_points(group="torch.backends"):
        try: entry.load()()
        except Exception as error:
            raise RuntimeError(f"Failed to load the backend extension: {entry.name}.") from error
`;

/** Puts everything into a folder: `libstandin.so`, `fake/torch`, and `tmp` for what processes leave. */
export function makeStandin(folder: string): void {
  for (const name of ['tmp', 'fake/torch']) mkdirSync(join(folder, name), { recursive: true });
  writeFileSync(join(folder, 'fake/torch/__init__.py'), FAKE_TORCH);
  const objects = compileParts(['engine', 'backend', 'runtime', 'testing'], 'release', join(folder, 'objects'));
  const includes = ['-Inative', '-Inative/engine', '-Ibuild/native'];
  compile(compilerOf('c'), [
    ...['-std=c11', '-O1', '-g', '-Wall', '-Wextra', '-Werror', '-fPIC', '-shared', '-pthread', ...includes],
    ...[join(SOURCES, 'standin_adapter.c'), ...objects, '-o', libraryIn(folder)],
  ]);
}

export function libraryIn(folder: string): string {
  return join(folder, 'libstandin.so');
}

/** The environment of a Python on the stand-in. Of PyTorch, `torch` is the folder to find it in; empty: it is installed. */
export function standinEnvironment(
  folder: string,
  variables: Record<string, string> = {},
  torch = join(folder, 'fake'),
): NodeJS.ProcessEnv {
  const rest = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('WEIR')));
  return {
    ...rest,
    PYTHONPATH: [SOURCES, PACKAGE, ...(torch ? [torch] : [])].join(':'),
    PYTHONDONTWRITEBYTECODE: '1',
    NO_COLOR: '1',
    XDG_RUNTIME_DIR: join(folder, 'tmp'),
    TMPDIR: join(folder, 'tmp'),
    WEIR_STANDIN_LIBRARY: libraryIn(folder),
    ...variables,
  };
}

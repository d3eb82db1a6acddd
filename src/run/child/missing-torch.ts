// Why no process of a command loaded Weir, if the reason is that its Python has no PyTorch.
import { spawnSync } from 'node:child_process';
import { basename } from 'node:path';

const PYTHON = /^python[\d.]*$/;
/** Programs that start Python themselves. */
const LAUNCHERS = /^(torchrun|accelerate|deepspeed|lightning)$/;
const NOT_FOUND = 9;
const TIMEOUT_MS = 10_000;

/** The Python that the command runs on, if that cannot find PyTorch; undefined: it can, or the command names no Python. */
export function pythonWithoutTorch(command: readonly string[], environment: NodeJS.ProcessEnv): string | undefined {
  const words = command.flatMap((word) => word.split(/[\s;&|]+/));
  const python =
    words.find((word) => PYTHON.test(basename(word))) ?? (words.some((word) => LAUNCHERS.test(basename(word))) ? 'python3' : undefined);
  if (python === undefined) return undefined;
  const question = `import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('torch') else ${NOT_FOUND})`;
  // Safe path: a torch.py in the current folder is not PyTorch.
  const env = { ...environment, PYTHONSAFEPATH: '1' };
  const { status } = spawnSync(python, ['-c', question], { env, timeout: TIMEOUT_MS, stdio: 'ignore' });
  return status === NOT_FOUND ? python : undefined;
}

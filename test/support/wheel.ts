// Makes and installs a wheel as a stranger would: pip, an empty environment, no network.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './command.ts';

/** Why no wheel can be tried here; undefined if one can. */
export function whyNoPip(): string | undefined {
  if (process.platform !== 'linux' || process.arch !== 'x64') return 'wheels are for Linux on x86_64';
  const script = 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))';
  return spawnSync('python3', ['-c', script]).status === 0 ? undefined : 'no Python 3.9 or newer with venv and pip';
}

/** `npm run build:wheel` of what is built; returns what it said and the path of the wheel. */
export function buildWheel(out: string, ...options: string[]): { said: string; path: string } {
  const words = ['scripts/build-wheel.mjs', '--no-build', '--out', out, ...options];
  const { status, stdout, stderr } = spawnSync(process.execPath, words, { cwd: ROOT.pathname, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${stdout}${stderr}`);
  const [name] = readdirSync(out).filter((entry) => entry.endsWith('.whl'));
  return { said: stdout, path: join(out, name!) };
}

/** A virtual environment. */
export class Environment {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
    if (!existsSync(path)) this.#check(spawnSync('python3', ['-m', 'venv', path], { encoding: 'utf8' }));
  }

  /** Path of a program in it. */
  program(name: string): string {
    return join(this.#path, 'bin', name);
  }

  get packages(): string {
    const library = join(this.#path, 'lib');
    return join(library, readdirSync(library).find((name) => name.startsWith('python'))!, 'site-packages');
  }

  /** Every file in it, in order. */
  files(): string[] {
    return (readdirSync(this.#path, { recursive: true }) as string[]).filter((name) => !/^lib64|(pip|setuptools)\//.test(name)).sort();
  }

  pip(...words: string[]): string {
    const quiet = ['-m', 'pip', '--disable-pip-version-check', '--no-input', '-q'];
    return this.#check(spawnSync(this.program('python'), [...quiet, ...words], { encoding: 'utf8' }));
  }

  #check(result: { status: number | null; stdout: string; stderr: string }): string {
    if (result.status !== 0) throw new Error(`${result.stdout}${result.stderr}`);
    return result.stdout;
  }
}

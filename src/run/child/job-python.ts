// The Python that a command starts, if the command says: it is a Python, or a script of one, such as torchrun.
// Programs that a job starts may run another Python. Only processes of this one must run on Weir.
import { closeSync, existsSync, openSync, readdirSync, readlinkSync, readSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { findProgram } from './program-path.ts';

const PYTHON = /^python[\d.]*$/;
/** Links from one name of an interpreter to another. */
const MOST_LINKS = 8;
const FIRST_LINE_BYTES = 512;

/** What that Python calls `sys.prefix`; undefined if it cannot be known without running the command. */
export function jobPython(command: readonly string[], environment: NodeJS.ProcessEnv): string | undefined {
  const program = findProgram(command[0] ?? '', environment);
  if (program === undefined) return undefined;
  const interpreter = PYTHON.test(basename(program)) ? program : interpreterOf(program, environment);
  return interpreter === undefined ? undefined : prefixOf(interpreter);
}

/** The Python in the first line of a script. */
function interpreterOf(script: string, environment: NodeJS.ProcessEnv): string | undefined {
  const words = /^#!\s*(\S+)(?:\s+(\S+))?/.exec(firstLine(script)) ?? [];
  const name = basename(words[1] ?? '') === 'env' ? words[2] : words[1];
  return name !== undefined && PYTHON.test(basename(name)) ? findProgram(name, environment) : undefined;
}

function firstLine(path: string): string {
  try {
    const file = openSync(path, 'r');
    try {
      const bytes = Buffer.alloc(FIRST_LINE_BYTES);
      return bytes.toString('latin1', 0, readSync(file, bytes, 0, bytes.length, 0)).split('\n')[0]!;
    } finally {
      closeSync(file);
    }
  } catch {
    return '';
  }
}

/** Python looks for its libraries from the name it was started by, then from what that links to. */
function prefixOf(interpreter: string): string | undefined {
  let path = interpreter;
  for (let links = 0; links < MOST_LINKS; links++) {
    const prefix = dirname(dirname(path));
    if (existsSync(join(prefix, 'pyvenv.cfg')) || hasLibrary(join(prefix, 'lib')) || hasLibrary(join(prefix, 'lib64'))) return prefix;
    try {
      path = resolve(dirname(path), readlinkSync(path));
    } catch {
      return undefined;
    }
  }
  return undefined;
}

function hasLibrary(folder: string): boolean {
  try {
    return readdirSync(folder).some((name) => /^python3\.\d+t?$/.test(name) && existsSync(join(folder, name, 'os.py')));
  } catch {
    return false;
  }
}

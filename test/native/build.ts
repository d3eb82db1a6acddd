// Compiles the runtime with the stand-in for PyTorch, plainly or under a sanitizer, and runs it.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { threadId } from 'node:worker_threads';
import { type Sanitizer, whyNoNative } from '../engine/native/build.ts';

export { type Sanitizer, whyNoNative };

const OUT = 'build/native/test';
const COMPILER = process.env['CC'] ?? 'cc';
const GENERATED = ['-Wno-unused-function', '-Wno-unused-parameter', '-Wno-unused-value', '-Wno-unused-variable', '-Wno-unused-label'];
const ENGINE = ['build/native/engine.c', 'native/weir_engine.c', 'native/wasm_runtime.c'];
const RUNTIME = readdirSync('native')
  .filter((name) => name.endsWith('.c'))
  .map((name) => `native/${name}`)
  .filter((path) => !ENGINE.includes(path));

const STANDIN = ['standin', 'conformance', 'spy_backend'].map((name) => `test/native/${name}.c`);

function compile(parameters: readonly string[]): void {
  const result = spawnSync(COMPILER, parameters, { encoding: 'utf8' });
  if (result.status !== 0) throw new Error(result.stderr);
}

/** Programs are kept under the hash of all that goes into them: test files run at the same time, and sanitizers compile slowly. */
function built(name: string, compileTo: (output: string) => void): string {
  mkdirSync(OUT, { recursive: true });
  const hash = createHash('sha256').update(COMPILER);
  for (const folder of ['native', 'test/native']) {
    for (const file of readdirSync(folder).sort()) if (/\.[ch]$/.test(file)) hash.update(file).update(readFileSync(`${folder}/${file}`));
  }
  hash.update(readFileSync('build/native/engine.c')).update(readFileSync('test/native/build.ts'));
  const output = `${OUT}/${name}-${hash.digest('hex').slice(0, 16)}`;
  if (existsSync(output)) return output;
  for (const old of readdirSync(OUT))
    if (old.startsWith(`${name}-`) && /-[0-9a-f]{16}$/.test(old)) rmSync(`${OUT}/${old}`, { force: true });
  const unfinished = `${output}.${process.pid}.${threadId}`;
  compileTo(unfinished);
  renameSync(unfinished, output);
  return output;
}

/** The path of the compiled stand-in. */
export function buildStandin(sanitizer: Sanitizer): string {
  return buildProgram('standin', STANDIN, sanitizer);
}

/** A job whose steps repeat, which follows plans. */
export function buildPlanJob(sanitizer: Sanitizer): string {
  return buildProgram('plan-job', ['test/native/plan_job.c'], sanitizer);
}

function buildProgram(name: string, sources: readonly string[], sanitizer: Sanitizer): string {
  const sanitize = sanitizer === 'none' ? [] : [`-fsanitize=${sanitizer}`, '-fno-sanitize-recover=all'];
  const flags = ['-std=c11', '-O1', '-g', '-pthread', '-Wall', '-Wextra', '-Werror', '-Inative', '-Ibuild/native', ...sanitize];
  return built(`${name}-${sanitizer.replace(',', '-')}`, (output) => {
    const objects = ENGINE.map((_, index) => `${output}.${index}.o`);
    try {
      for (const [index, source] of ENGINE.entries()) compile([...flags, ...GENERATED, '-c', source, '-o', objects[index]!]);
      compile([...flags, '-Itest/native', ...sources, ...RUNTIME, ...objects, '-ldl', '-o', output]);
    } finally {
      for (const object of objects) rmSync(object, { force: true });
    }
  });
}

/** What the stand-in prints at its end; numbers are counts unless the name says otherwise. */
export interface StandinResult {
  /** Bytes that a stream read and that were not what it had written. */
  readonly corrupted: number;
  readonly allocations: number;
  readonly shortages: number;
  readonly failures: number;
  readonly waits: number;
  readonly borrows: number;
  readonly stitches: number;
  readonly recorded: number;
  readonly reclaims: number;
  readonly unmaps: number;
  readonly synchronizations: number;
  readonly peakLive: number;
  readonly peakReserved: number;
}

/** Runs it to its end; throws unless everything that must hold did. */
export function runStandin(path: string, options: Readonly<Record<string, number | string>>): StandinResult {
  const words = Object.entries(options).map(([name, value]) => `${name}=${value}`);
  const result = spawnSync(path, words, { encoding: 'utf8', env: { ...process.env, RANK: '3', LOCAL_RANK: '1', WORLD_SIZE: '8' } });
  if (result.status !== 0) {
    throw new Error(`${words.join(' ')}: status ${result.status} ${result.signal}: ${result.stderr.slice(0, 4000)}`);
  }
  return JSON.parse(result.stdout) as StandinResult;
}

/** Where everything in ring.h lies, as the compiler says. */
export interface RingLayout {
  readonly constants: Readonly<Record<string, number | string>>;
  readonly header: Readonly<Record<string, number>>;
  readonly gauges: Readonly<Record<string, number>>;
  readonly event: Readonly<Record<string, number>>;
}

export function ringLayout(): RingLayout {
  const flags = ['-std=c11', '-Wall', '-Wextra', '-Werror', '-Inative'];
  const program = built('ring-layout', (output) => compile([...flags, 'test/native/ring_layout.c', '-o', output]));
  return JSON.parse(spawnSync(program, { encoding: 'utf8' }).stdout) as RingLayout;
}

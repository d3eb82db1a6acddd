// Compiles the runtime with the stand-in for PyTorch, plainly or under a sanitizer, and runs it.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { threadId } from 'node:worker_threads';
import { compileParts, compileProgram, compilerOf, nativeFiles, sanitizerFlags } from '../../scripts/native-rules.mjs';
import { type Sanitizer, whyNoNative } from '../engine/native/build.ts';

export { type Sanitizer, whyNoNative };

const OUT = 'build/native/test';
const PARTS = ['engine', 'backend', 'runtime', 'testing'];
const STANDIN = ['standin', 'conformance', 'spy_backend'].map((name) => `test/native/${name}.c`);

/** Programs are kept under the hash of all that goes into them: test files run at the same time, and sanitizers compile slowly. */
function built(name: string, compileTo: (output: string) => void): string {
  mkdirSync(OUT, { recursive: true });
  const hash = createHash('sha256').update(compilerOf('c'));
  const own = readdirSync('test/native')
    .filter((file) => /\.[ch]$|^build\.ts$/.test(file))
    .sort();
  const files = [...nativeFiles(), ...own.map((file) => `test/native/${file}`), 'scripts/native-rules.mjs'];
  for (const file of files) hash.update(file).update(readFileSync(file));
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

/** A job on a GPU that is far behind. */
export function buildLateGpu(sanitizer: Sanitizer): string {
  return buildProgram('late-gpu', ['test/native/late_gpu.c', 'test/native/spy_backend.c'], sanitizer);
}

/** A job whose steps repeat, which follows plans. */
export function buildPlanJob(sanitizer: Sanitizer): string {
  return buildProgram('plan-job', ['test/native/plan_job.c'], sanitizer);
}

/** A job that makes the requests of a file, with the settings that a run gives it. */
export function buildPolicyJob(): string {
  return buildProgram('policy-job', ['test/native/policy_job.c'], 'none');
}

/** Takes memory of a CUDA driver and prints of which kind it is. */
export function buildCudaMemory(): string {
  return buildProgram('cuda-memory', ['test/native/cuda_memory.c'], 'none');
}

function buildProgram(name: string, sources: readonly string[], sanitizer: Sanitizer): string {
  return built(`${name}-${sanitizer.replace(',', '-')}`, (output) => {
    const sanitize = sanitizerFlags(sanitizer);
    const objects = `${output}.objects`;
    try {
      compileProgram(sources, 'test', output, [...compileParts(PARTS, 'test', objects, sanitize), ...sanitize, '-Itest/native']);
    } finally {
      rmSync(objects, { recursive: true, force: true });
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

// Compiles the native engine with a test program, plainly or under a sanitizer.
import { spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';

const OUT = 'build/native/test';
const GENERATED = ['-Wno-unused-function', '-Wno-unused-parameter', '-Wno-unused-value', '-Wno-unused-variable', '-Wno-unused-label'];

export type Sanitizer = 'none' | 'address,undefined' | 'thread';

/** Why native tests cannot run here; undefined when they can. */
export function whyNoNative(sanitizer: Sanitizer = 'none'): string | undefined {
  const compiler = process.env['CC'] ?? 'cc';
  if (spawnSync(compiler, ['--version']).status !== 0) return `no C compiler (${compiler})`;
  if (sanitizer === 'none') return undefined;
  mkdirSync(OUT, { recursive: true });
  const probe = spawnSync(compiler, ['-x', 'c', '-', `-fsanitize=${sanitizer}`, '-o', `${OUT}/probe`], {
    input: 'int main(void) { return 0; }',
  });
  return probe.status === 0 ? undefined : `the compiler has no -fsanitize=${sanitizer}`;
}

/** The path of the compiled program. */
export function buildNative(program: 'program' | 'threads', sanitizer: Sanitizer): string {
  mkdirSync(OUT, { recursive: true });
  const output = `${OUT}/${program}-${sanitizer.replace(',', '-')}`;
  // A stray access of the engine stays in its own memory, where no sanitizer would see it: there the engine looks itself.
  const sanitize = sanitizer === 'none' ? [] : [`-fsanitize=${sanitizer}`, '-fno-sanitize-recover=all', '-DWEIR_BOUNDS_CHECK'];
  const flags = ['-std=c11', '-O1', '-g', '-pthread', '-Wall', '-Wextra', '-Werror', ...GENERATED, ...sanitize];
  const includes = ['-Inative', '-Ibuild/native', '-Itest/engine/native'];
  const sources = [
    'build/native/engine.c',
    'native/weir_engine.c',
    'native/wasm_runtime.c',
    'test/engine/native/ledger_driver.c',
    `test/engine/native/${program}.c`,
  ];
  const result = spawnSync(process.env['CC'] ?? 'cc', [...flags, ...includes, ...sources, '-o', output], { encoding: 'utf8' });
  if (result.status !== 0) throw new Error(result.stderr);
  return output;
}

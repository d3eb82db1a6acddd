// Compiles the native engine with a test program, plainly or under a sanitizer.
import { spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { compileParts, compileProgram, compilerOf, hasCompiler, sanitizerFlags } from '../../../scripts/native-rules.mjs';

const OUT = 'build/native/test';

export type Sanitizer = 'none' | 'address,undefined' | 'thread';

/** Why native tests cannot run here; undefined when they can. */
export function whyNoNative(sanitizer: Sanitizer = 'none'): string | undefined {
  const compiler = compilerOf('c');
  if (!hasCompiler('c')) return `no C compiler (${compiler})`;
  if (sanitizer === 'none') return undefined;
  mkdirSync(OUT, { recursive: true });
  const probe = spawnSync(compiler, ['-x', 'c', '-', `-fsanitize=${sanitizer}`, '-o', `${OUT}/probe`], {
    input: 'int main(void) { return 0; }',
  });
  return probe.status === 0 ? undefined : `the compiler has no -fsanitize=${sanitizer}`;
}

/** The path of the compiled program. */
export function buildNative(program: 'program' | 'threads', sanitizer: Sanitizer): string {
  const output = `${OUT}/${program}-${sanitizer.replace(',', '-')}`;
  const sanitize = sanitizerFlags(sanitizer);
  const objects = compileParts(['engine'], 'test', `${output}.objects`, sanitize);
  const sources = ['ledger_driver.c', `${program}.c`].map((name) => `test/engine/native/${name}`);
  compileProgram(sources, 'test', output, [...objects, ...sanitize, '-Itest/engine/native']);
  return output;
}

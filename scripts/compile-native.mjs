// Compiles a program in C or C++ that uses the native runtime, by the rules of native/build.json. Run after `npm run build`:
//   node scripts/compile-native.mjs bench/runtime.c build/native/bench/runtime
import { dirname, relative, resolve } from 'node:path';
import { compileProgram, GENERATED, linkedWith } from './native-rules.mjs';

const [source, output] = process.argv.slice(2);
if (!source || !output) {
  console.error('usage: node scripts/compile-native.mjs SOURCE OUTPUT');
  process.exit(2);
}
compileProgram([source], 'bench', output, linkedWith('libweir_runtime.so', relative(dirname(resolve(output)), resolve(GENERATED))));

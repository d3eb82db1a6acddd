// Installs, builds and runs one of the project's own programs: `node scripts/run.mjs build/bench/main.js ...`.
import { build, run } from './setup.mjs';

const [program, ...parameters] = process.argv.slice(2);
build();
run(process.execPath, '--expose-gc', program, ...parameters);

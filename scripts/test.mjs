// `npm test`: installs, builds (which type-checks everything), lints and runs all tests.
import { build, run } from './setup.mjs';

build();
run('npx', '--no-install', 'biome', 'check', '--error-on-warnings', '.');
run('npx', '--no-install', 'vitest', 'run', ...process.argv.slice(2));

// `npm test`: installs, builds (which type-checks everything), checks format and lints of every language, and runs all tests.
import { build, run } from './setup.mjs';

build();
run('node', 'scripts/format.mjs', '--check');
run('npx', '--no-install', 'vitest', 'run', ...process.argv.slice(2));

// Builds the command after an installation, and before packing. npm calls it for `npm install -g .` in a clone, which
// installs neither the packages that Weir needs nor those that build it.
import { existsSync, rmSync } from 'node:fs';
import { build, isInstalling, markInstalled, run } from './setup.mjs';

const COMMAND = 'dist/cli/main.js';

if (isInstalling) process.exit(0);
const hasTools = existsSync('node_modules/typescript');
if (process.env.npm_config_global === 'true') {
  build();
} else if (hasTools) {
  if (['ci', 'install'].includes(process.env.npm_command)) markInstalled();
  // A package must not hold modules that are gone.
  if (process.env.npm_command === 'pack' || process.env.npm_command === 'publish') {
    for (const path of ['dist', 'build/src.tsbuildinfo']) rmSync(path, { recursive: true, force: true });
  }
  run('npm', 'run', '--silent', 'build');
} else if (!existsSync(COMMAND)) {
  console.error('weir cannot be built: its development packages are missing; run npm ci without --omit=dev, then this again');
  process.exit(1);
}

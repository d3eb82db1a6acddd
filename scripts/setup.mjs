// Installs the packages of the lockfile unless they are installed, so that `npm start` and `npm test` work on their
// own.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';

const STAMP = 'node_modules/.installed';

process.chdir(new URL('..', import.meta.url).pathname);

/** Runs a command. If it fails, this process exits with the same code. */
export function run(command, ...parameters) {
  const { status, signal, error } = spawnSync(command, parameters, { stdio: 'inherit' });
  if (error) {
    console.error(`${command} could not be started: ${error.message}`);
    process.exit(1);
  }
  if (signal) process.kill(process.pid, signal);
  if (status !== 0) process.exit(status ?? 1);
}

export function setUp() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major < 20 || (major === 20 && minor < 19)) {
    console.error(`weir needs Node 20.19 or newer; this is ${process.version}`);
    process.exit(1);
  }
  const wanted = createHash('sha256').update(readFileSync('package-lock.json')).digest('hex');
  const installed = existsSync(STAMP) ? readFileSync(STAMP, 'utf8') : '';
  if (installed !== wanted) {
    run('npm', 'ci', '--no-audit', '--no-fund');
    writeFileSync(STAMP, wanted);
  }
}

/** Installs if needed, and builds. */
export function build() {
  setUp();
  run('npm', 'run', '--silent', 'build');
}

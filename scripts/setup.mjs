// Installs the packages of the lockfile unless they are installed, so that `npm start` and `npm test` work on their
// own.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';

const STAMP = 'node_modules/.installed';

/** Set while `setUp` installs, so that `prepare` leaves the build to its caller. */
const INSTALLING = 'WEIR_SETUP_INSTALLING';
/** Whether npm called this for `prepare`: it hides all output unless the script fails. */
const isPreparing = process.env.npm_lifecycle_event === 'prepare';
export const isInstalling = process.env[INSTALLING] !== undefined;

process.chdir(new URL('..', import.meta.url).pathname);

/** `npm install -g` hands its options to the scripts that it runs, but packages of a clone go into the clone. */
function localEnvironment() {
  const { npm_config_global: _global, npm_config_location: _location, npm_config_prefix: _prefix, ...rest } = process.env;
  return rest;
}

/** Runs a command. If it fails, this process exits with the same code. */
export function run(command, ...parameters) {
  const { status, signal, error } = spawnSync(command, parameters, { stdio: 'inherit', env: localEnvironment() });
  if (error) {
    console.error(`${command} could not be started: ${error.message}`);
    process.exit(1);
  }
  if (signal) process.kill(process.pid, signal);
  if (status !== 0) {
    if (isPreparing) console.error(`weir cannot be built: ${[command, ...parameters.slice(0, 1)].join(' ')} failed, as shown above`);
    process.exit(status ?? 1);
  }
}

export function setUp() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major < 20 || (major === 20 && minor < 19)) {
    console.error(`weir needs Node 20.19 or newer; this is ${process.version}`);
    process.exit(1);
  }
  const installed = existsSync(STAMP) ? readFileSync(STAMP, 'utf8') : '';
  if (installed !== wanted()) {
    process.env[INSTALLING] = '1';
    run('npm', 'ci', '--no-audit', '--no-fund');
    delete process.env[INSTALLING];
    markInstalled();
  }
}

function wanted() {
  return createHash('sha256').update(readFileSync('package-lock.json')).digest('hex');
}

/** Notes that the packages of the lockfile are installed. */
export function markInstalled() {
  writeFileSync(STAMP, wanted());
}

/** Installs if needed, and builds. */
export function build() {
  setUp();
  run('npm', 'run', '--silent', 'build');
}

// `npm install -g .` in a clone: whatever was installed or built before, it ends with a command or with a sentence.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { ROOT } from '../support/command.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-install-'));
afterAll(() => rmSync(folder, { recursive: true }));

const from = (path: string) => join(ROOT.pathname, path);

/** A clone whose build takes `dist` from here instead of compiling for half a minute. */
function clone(name: string): string {
  const path = join(folder, name);
  mkdirSync(path);
  for (const part of ['bin', 'scripts', 'package-lock.json', '.npmrc']) cpSync(from(part), join(path, part), { recursive: true });
  const description = JSON.parse(readFileSync(from('package.json'), 'utf8'));
  description.scripts.build = `node -e "fs.symlinkSync('${from('dist')}', 'dist')"`;
  writeFileSync(join(path, 'package.json'), JSON.stringify(description));
  return path;
}

/** Leaves the traces of `npm ci`. The command finds its packages here, where `dist` really is. */
function pretendInstalled(path: string): void {
  mkdirSync(join(path, 'node_modules/typescript'), { recursive: true });
  writeFileSync(
    join(path, 'node_modules/.installed'),
    createHash('sha256')
      .update(readFileSync(from('package-lock.json')))
      .digest('hex'),
  );
}

/** Installs from `cwd` without a network, and runs the command that this made. */
function install(cwd: string, ...options: string[]) {
  const prefix = `${cwd}-installed`;
  const words = ['install', '-g', '.', '--prefix', prefix, '--cache', `${cwd}-cache`, '--offline', '--no-audit', '--no-fund', ...options];
  const npm = spawnSync('npm', words, { cwd, encoding: 'utf8' });
  const command = spawnSync(join(prefix, 'bin/weir'), ['--version'], { cwd: folder, encoding: 'utf8' });
  return { npm, command };
}

describe.skipIf(process.platform === 'win32')('npm install -g .', () => {
  it('builds the clone and installs a command that runs', () => {
    const path = clone('installed');
    pretendInstalled(path);
    const { npm, command } = install(path);
    expect(npm.status, npm.stderr).toBe(0);
    expect(existsSync(join(path, 'dist'))).toBe(true);
    const { version } = JSON.parse(readFileSync(from('package.json'), 'utf8'));
    expect([command.status, command.stdout]).toEqual([0, `${version}\n`]);
  });

  it('first installs the packages that Weir needs, and fails if there are none to be had', () => {
    const { npm } = install(clone('offline'));
    expect(npm.status).not.toBe(0);
    expect(npm.stderr).toContain('weir cannot be built: npm ci failed');
  });

  it('without scripts, installs a command that says how to build', () => {
    const path = clone('unbuilt');
    const { npm, command } = install(path, '--ignore-scripts');
    expect(npm.status, npm.stderr).toBe(0);
    expect([command.status, command.stderr]).toEqual([2, `weir: not built yet; run npm start in ${path}/\n`]);
  });
});

describe('prepare', () => {
  const prepare = (cwd: string, npm_command: string) =>
    spawnSync(process.execPath, ['scripts/prepare.mjs'], {
      cwd,
      encoding: 'utf8',
      env: { ...process.env, npm_command, npm_config_global: '' },
    });

  it('says which packages it lacks', () => {
    const { status, stderr } = prepare(clone('omitted'), 'install');
    expect([status, stderr]).toEqual([
      1,
      'weir cannot be built: its development packages are missing; run npm ci without --omit=dev, then this again\n',
    ]);
  });

  it('leaves no modules of an earlier build in a package', () => {
    const path = clone('packed');
    pretendInstalled(path);
    mkdirSync(join(path, 'dist'));
    writeFileSync(join(path, 'dist/gone.js'), '');
    expect(prepare(path, 'pack').status).toBe(0);
    expect(existsSync(join(path, 'dist/gone.js'))).toBe(false);
    expect(existsSync(join(path, 'dist/cli/main.js'))).toBe(true);
  });
});

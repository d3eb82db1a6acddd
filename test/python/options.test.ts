// The options of weir_gpu.enable() (python/weir_gpu/options.py) are those of `weir run`: the same names, variables and values.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { ChildVariable, OptionVariable, UserVariable } from '../../src/abi/environment.ts';
import { parseBytes } from '../../src/base/bytes.ts';
import { runCommand } from '../../src/cli/commands/run.ts';
import { superviseCommand } from '../../src/cli/commands/supervise.ts';
import { variableOf } from '../../src/cli/environment-options.ts';
import { stacksOption } from '../../src/cli/run-options.ts';
import { changedVariables } from '../../src/run/child/environment.ts';
import { ownerOf } from '../../src/run/child/folder-owner.ts';

const found = spawnSync('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 9))']);
const reason = found.status === 0 ? '' : ' (skipped: no Python 3.9 or newer)';
const folder = mkdtempSync(join(tmpdir(), 'weir-options-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function ask(script: string) {
  const run = spawnSync('python3', ['-c', `import json, sys\n${script}`], {
    env: { PATH: process.env['PATH'], PYTHONPATH: resolve('dist/python') },
    cwd: folder,
    encoding: 'utf8',
  });
  expect(run.stderr).toBe('');
  return JSON.parse(run.stdout);
}

/** What only the command has. */
const ONLY_COMMAND = ['check', 'checkLines', 'checkOutput', 'json'];
const snake = (name: string) => name.replace(/([A-Z])/g, '_$1').toLowerCase();

describe.skipIf(reason !== '')(`options without a wrapper${reason}`, () => {
  test('are all that the command has, with the same variables', () => {
    const options = runCommand().options.filter((option) => !ONLY_COMMAND.includes(option.attributeName()));
    const names = options.map((option) => option.attributeName());
    expect(Object.keys(OptionVariable).sort()).toEqual([...names].sort());
    for (const option of options) expect(OptionVariable[option.attributeName() as keyof typeof OptionVariable]).toBe(variableOf(option));
    const script = `
import dataclasses, inspect, weir_gpu
from weir_gpu import options
print(json.dumps([sorted(inspect.signature(weir_gpu.enable).parameters), sorted(f.name for f in dataclasses.fields(options.Options))]))`;
    const [parameters, fields] = ask(script);
    expect(fields).toEqual(names.map(snake).sort());
    expect(parameters).toEqual([...names.map(snake), 'required'].sort());
  });

  test('a process that will be given plans knows it from its first request on', () => {
    const script = `
from weir_gpu import options, settings
found = [options.Options(plan=plan).variables() for plan in (True, False)]
print(json.dumps([[variables.get("WEIR_CHILD_PLAN"), settings.read(variables).plan] for variables in found]))`;
    expect(ask(script)).toEqual([
      ['1', true],
      [null, false],
    ]);
    const rest = { command: [], allocator: 'weir', limit: undefined, folder, lend: true, swap: undefined, swapHost: undefined } as const;
    const others = { ...rest, allowUntested: false, ringRows: 4096, stacks: undefined, quiet: true };
    const parts = { [UserVariable.pythonDir]: folder, [UserVariable.nativeDir]: folder };
    const told = (plan: boolean) => changedVariables(parts, { ...others, plan })[ChildVariable.plan];
    expect([told(true), told(false)]).toEqual(['1', undefined]);
  });

  test('sizes mean the same', () => {
    const texts = ['24GiB', '512 MiB', ' 80GB ', '1.5g', '1.5 G', '40gib', '123', '7b', '2k', '2kb', '0.3T', '9tb', '1000.7', '2.5', '0.5'];
    const wrong = ['', 'GiB', '-1', '1e9', '24 GiB each', '24XiB', '1.GiB', '.5g', '0', '0.4', '99999999TiB', '٣GiB', '1,5g', '0x10'];
    const script = (list: string[]) => `
from weir_gpu import options
def size(text):
    try: return options.parse_size(text)
    except ValueError as error: return str(error)
print(json.dumps([size(text) for text in json.loads(${JSON.stringify(JSON.stringify(list))})]))`;
    expect(ask(script(texts))).toEqual(texts.map(parseBytes));
    const refused = wrong.map((text) => {
      try {
        return parseBytes(text) > 0 ? 'accepted' : 'the size must be more than 0';
      } catch (error) {
        return (error as Error).message;
      }
    });
    expect(refused).not.toContain('accepted');
    expect(ask(script(wrong))).toEqual(refused);
  });

  test('stacks mean the same', () => {
    const option = stacksOption('large');
    const texts = ['off', '0', 'no', 'large', 'Large:4MiB', 'large:1', 'python', 'on', '1', 'all', 'ALL'];
    const wrong = ['', 'c++', 'large:', 'large:x', 'python:4KiB', 'all:1', 'large:0', 'torchrun', 'large:1:2'];
    const script = (list: string[]) => `
from weir_gpu import options
def stacks(text):
    try: return options._stacks(text) or "off"
    except ValueError: return "refused"
print(json.dumps([stacks(text) for text in json.loads(${JSON.stringify(JSON.stringify(list))})]))`;
    const parsed = (text: string) => {
      try {
        return option.parseArg!(text, undefined);
      } catch {
        return 'refused';
      }
    };
    expect(texts.map(parsed)).toEqual(ask(script(texts)));
    expect(texts.map(parsed)).not.toContain('refused');
    expect([wrong.map(parsed), ask(script(wrong))]).toEqual([wrong.map(() => 'refused'), wrong.map(() => 'refused')]);
    const [standard, python, off] = ask(`
from weir_gpu import options
print(json.dumps([options.read(given, {}).variables().get("WEIR_CHILD_STACKS") for given in ({}, {"stacks": True}, {"stacks": False})]))`);
    expect([standard, python, off]).toEqual([option.defaultValue, 'python', null]);
  });

  test('reach the supervisor as they were given', () => {
    const given = `dict(allocator="gmlake", limit="40GiB", record="a b/%r.weir", force=True, oom_dir="a b", what_if=False, what_if_events=5_000, metrics=0,
metrics_host="::1", serve=True, serve_port=8080, swap="24GiB", swap_host="1GiB", json_file="-s.json", verbose=True, ring_rows=4096)`;
    const script = `
import os
os.mkdir("a b")
from weir_gpu import options
print(json.dumps(options.read(${given}, {}).words()))`;
    const command = superviseCommand().exitOverride();
    let parsed: unknown;
    command.action((flags: unknown) => {
      parsed = flags;
    });
    command.parse(['--folder', '/f', '--pid', '7', '--started', '99', ...ask(script)], { from: 'user' });
    expect(parsed).toEqual({
      folder: '/f',
      pid: '7',
      started: '99',
      allocator: 'gmlake',
      limit: 40 * 2 ** 30,
      record: join(folder, 'a b/%r.weir'),
      force: true,
      oomDir: join(folder, 'a b'),
      whatIf: false,
      whatIfEvents: 5000,
      metrics: 0,
      metricsHost: '::1',
      serve: true,
      servePort: 8080,
      swap: 24 * 2 ** 30,
      jsonFile: join(folder, '-s.json'),
      verbose: true,
    });
  });

  test('the folder of a process is named as the command names its own', () => {
    const [path, pid] = ask(`
import os
from weir_gpu import folders, settings
print(json.dumps([folders.run_folder(settings.read({})), os.getpid()]))`);
    expect(ownerOf(path.split('/').at(-1))).toEqual({ pid, started: expect.stringMatching(/^\d+$/) });
  });
});

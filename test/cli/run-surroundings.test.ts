// What a command finds around it under `weir run`, and what is there after it: files, signals, variables, pipes.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { MAIN } from '../support/command.ts';
import { job, RunFolder } from '../support/run-folder.ts';

const run = new RunFolder();
const shell = (script: string) => spawnSync('bash', ['-c', script], { cwd: run.path, encoding: 'utf8', env: { ...run.environment, MAIN } });

/** Not every machine has all that these tests start. */
function isThere(program: string): boolean {
  return spawnSync(program, ['--version']).status === 0;
}

describe('arguments and variables', () => {
  it.skipIf(process.platform !== 'linux')('are the same bytes as without weir, also if they are no UTF-8', () => {
    const command = `sh -c 'printf "%s " "$1" "$2" "$3" "$PLACE" "$PYTHONPATH"' x $'\\xfe\\xff' $'\\xff' $'\\xe9t\\xe9'`;
    const outputOf = (before: string) => {
      const script = `export PLACE=$'/data/\\xfc' PYTHONPATH=$'/lib/\\xe4'; ${before} ${command}`;
      return spawnSync('bash', ['-c', script], { cwd: run.path, encoding: 'latin1', env: { ...run.environment, MAIN } }).stdout;
    };
    expect(outputOf('')).toBe('\xfe\xff \xff \xe9t\xe9 /data/\xfc /lib/\xe4 ');
    const [start, path] = outputOf(`${process.execPath} "$MAIN" run -q --`).split(/(?<=\/data\/\xfc )/);
    expect([start, path]).toEqual(['\xfe\xff \xff \xe9t\xe9 /data/\xfc ', expect.stringMatching(/:\/lib\/\xe4 $/)]);
  });
});

describe('a file that --check compares', () => {
  const check = (file: string, ...command: string[]) => run.weir(['run', '--check', '--check-output', file, '--', ...command]);
  const path = (name: string) => join(run.path, name);

  it('stays what it was if the command does not write it, or fails', async () => {
    const failing = ['rm -f kept; exit 3', 'printf part > kept; exit 3', 'printf more >> kept; exit 3'];
    for (const command of [['true'], ...failing.map((script) => ['sh', '-c', script])]) {
      writeFileSync(path('kept'), 'precious');
      await check('kept', ...command);
      expect([command, readFileSync(path('kept'), 'utf8')]).toEqual([command, 'precious']);
    }
    expect(readdirSync(run.temporary)).toEqual([]);
  });

  it('is in the end what the command made on our allocator', async () => {
    const script = 'echo "loss $(wc -l < made)" >> made';
    writeFileSync(path('made'), 'loss 7\n');
    const { stderr } = await check('made', 'sh', '-c', script);
    expect(stderr).toContain('check: ');
    // Every run has found one line, and the last left nothing.
    expect(readFileSync(path('made'), 'utf8')).toBe('loss 7\nloss 1\n');
  });

  it('is there after a signal that comes between two runs', async () => {
    writeFileSync(path('kept'), 'precious');
    const child = run.start(['run', '--check', '--check-output', 'kept', '--', 'sh', '-c', 'echo > begun; sleep 3 & true']);
    child.stderr!.resume();
    while (!existsSync(path('begun'))) await sleep(20);
    await sleep(300);
    child.kill('SIGTERM');
    expect(await new Promise((resolve) => child.on('close', (code, signal) => resolve([code, signal])))).toEqual([null, 'SIGTERM']);
    expect(readFileSync(path('kept'), 'utf8')).toBe('precious');
    expect(readdirSync(run.temporary)).toEqual([]);
  });

  it('must be one', async () => {
    mkdirSync(path('folder'));
    const { code, stderr } = await check('folder', 'true');
    expect([code, stderr]).toEqual([125, expect.stringContaining('folder is not a regular file')]);
    expect(existsSync(path('folder'))).toBe(true);
  });
});

describe('--check', () => {
  it('proves nothing where nothing ran on our allocator', async () => {
    const { code, stderr } = await run.weir(['run', '--check', '--json-file', 'check.json', '--', 'echo', 'loss 1']);
    expect([code, stderr]).toEqual([1, expect.stringContaining('check: nothing was proved: no process of the command ran on weir')]);
    expect(JSON.parse(readFileSync(join(run.path, 'check.json'), 'utf8')).check.isSame).toBe(false);
  });

  it('reads lines of any length', async () => {
    const words = [process.execPath, '-e', 'console.log(".".repeat(1e5)); console.log("loss".repeat(2e4)); console.log("train_loss: 2.5")'];
    const { stderr } = await run.weir(['run', '--check', '--json-file', 'long.json', '--', ...words]);
    expect(stderr).toContain('check: ');
    expect(JSON.parse(readFileSync(join(run.path, 'long.json'), 'utf8')).check.compared).toBe(1);
  });

  it('leaves nothing behind when nobody reads on, however late', () => {
    const steps = 'for n in 1 2 3 4 5 6; do echo loss $n; sleep 0.1; done';
    const result = shell(`echo precious > file; node "$MAIN" run --check -- sh -c '${steps}' | grep -m1 loss`);
    expect(result.stdout).toBe('loss 1\n');
    shell(`node "$MAIN" run --check --check-output file -- sh -c '(sleep 0.3; echo late) & true' | true`);
    expect(readFileSync(join(run.path, 'file'), 'utf8')).toBe('precious\n');
    expect(readdirSync(run.temporary)).toEqual([]);
  });

  it("compares with PyTorch's own allocator inside of an outer run, too", async () => {
    const inner = ['run', '--check', '--', 'sh', '-c', 'echo "<$WEIR_CHILD_ALLOCATOR>" >> seen; echo loss 1'];
    await run.weir(['run', '-q', '--', process.execPath, MAIN, ...inner]);
    expect(readFileSync(join(run.path, 'seen'), 'utf8')).toBe('<>\n<weir>\n<>\n');
  });
});

describe('the end of a command', () => {
  it.each([
    ['PIPE', 141],
    ['XFSZ', 153],
  ])('by %s is told with %d', async (signal, code) => {
    expect((await run.weir(['run', '-q', '--', 'sh', '-c', `kill -${signal} $$`])).code).toBe(code);
  });

  it('before its beginning is told in a sentence', async () => {
    expect(await run.weir(['run', '--', ''])).toMatchObject({ code: 127, stderr: expect.stringContaining('the command is empty') });
    expect(await run.weir(['run', '-q', '--', '/etc/passwd/x'])).toMatchObject({
      code: 126,
      stderr: 'weir: /etc/passwd/x: cannot be executed (ENOTDIR)\n',
    });
  });

  it.each([
    [34, 'SIGRTMIN+0'],
    [40, 'SIGRTMIN+6'],
    [64, 'SIGRTMIN+30'],
  ])('by real-time signal %d is told with 128 and its number', async (number, name) => {
    const { code, signal, stderr } = await run.weir(['run', '--json', '--', 'sh', '-c', `kill -${number} $$`]);
    expect([code, signal]).toEqual([128 + number, null]);
    expect(JSON.parse(stderr)).toMatchObject({ exitCode: null, signal: name });
    const check = await run.weir(['run', '-q', '--check', '--', 'sh', '-c', `echo loss 1; kill -${number} $$`]);
    expect(check.code).toBe(128 + number);
  });

  it('that is a script without a first line for its shell is that of the script', async () => {
    writeFileSync(join(run.path, 'bare'), 'echo "$1 $0"; exit 5', { mode: 0o755 });
    expect(await run.weir(['run', '-q', '--', './bare', 'word'])).toMatchObject({
      code: 5,
      stdout: expect.stringMatching(/^word .*\/bare\n$/),
    });
    expect((await run.weir(['run', '-q', '--', 'bare'], { PATH: `${run.path}:${process.env['PATH']}` })).code).toBe(5);
  });

  /** Hangs up on the shell line's `weir run` and its command, and tells how it ended and what the command said. */
  const hangUp = (line: string) =>
    // What an earlier line said must not be taken for this one's.
    `rm -f out pids; ${line} > out 2> /dev/null & while ! grep -q begun out 2> /dev/null; do sleep 0.05; done; kill -HUP $(cat pids); wait $!; echo "$?"; cat out`;
  const COMMAND = `sh -c 'echo $$ $PPID > pids; echo begun; sleep 0.7; echo over'`;

  it('does not come with the terminal under nohup', () => {
    const started = `node "$MAIN" run -q -- ${COMMAND}`;
    expect(shell(hangUp(`nohup ${started}`)).stdout).toBe('0\nbegun\nover\n');
    expect(shell(hangUp(started)).stdout).toBe('129\nbegun\n');
    // The three runs of a check are one.
    expect(shell(hangUp(`nohup node "$MAIN" run -q --check -- ${COMMAND}`)).stdout).toBe('1\nbegun\nover\n');
  });

  it('does not come with the terminal in a script under nohup, whatever its shell', () => {
    writeFileSync(join(run.path, 'job.sh'), `node "$MAIN" run -q -- ${COMMAND}; echo "then $?"`);
    expect(shell(hangUp('nohup sh job.sh')).stdout).toBe('0\nbegun\nover\nthen 0\n');
    expect(shell(hangUp(`(trap '' HUP; exec sh job.sh)`)).stdout).toBe('0\nbegun\nover\nthen 0\n');
    expect(shell(hangUp('sh job.sh')).stdout).toBe('0\nbegun\nthen 129\n');
  });

  it.skipIf(!isThere('script'))('does not come with the terminal under nohup in a shell that does not say so', () => {
    const typed = (start: string) =>
      `rm -f out pids; unset _; ${start} node "${MAIN}" run -q -- ${COMMAND} > out 2> /dev/null & while ! grep -q begun out 2> /dev/null; do sleep 0.05; done; kill -HUP $(cat pids); wait $!; echo "$?" > code`;
    const atTerminal = (start: string) => {
      writeFileSync(join(run.path, 'typed.sh'), typed(start));
      // A job of an interactive shell has the terminal as its input.
      shell(`script -qec 'env -u _ dash -m typed.sh' /dev/null < /dev/null`);
      return readFileSync(join(run.path, 'code'), 'utf8') + readFileSync(join(run.path, 'out'), 'utf8');
    };
    expect(atTerminal('nohup')).toBe('0\nbegun\nover\n');
    expect(atTerminal('')).toBe('129\nbegun\n');
  });

  it('is not changed by a message that comes too late', async () => {
    const child = run.start(['run', '-v', ...job('train=400', 'close')]);
    let told = '';
    child.stdout!.resume();
    child.stderr!.on('data', (chunk: Buffer) => {
      if (!told.includes('replaying') && String(chunk).includes('replaying')) child.kill('SIGUSR2');
      told += String(chunk);
    });
    const end = await new Promise((resolve) => child.on('close', (code, signal) => resolve([code, signal])));
    expect([end, told]).toEqual([[0, null], expect.stringMatching(/replaying[\s\S]*would have needed/)]);
    expect(readdirSync(run.temporary)).toEqual([]);
  });
});

describe('variables', () => {
  it('of options that a command does not have do not reach its job', async () => {
    const { stdout } = await run.weir(['record', '-q', '-f', '--', 'sh', '-c', 'echo "$WEIR_CHILD_LIMIT,$WEIR_CHILD_SWAP"'], {
      WEIR_LIMIT: '40GiB',
      WEIR_SWAP: 'auto',
    });
    expect(stdout).toBe(',\n');
  });

  it('of an outer run are no words for an inner one', async () => {
    const inner = (...words: string[]) => run.weir(['run', '-q', '--', process.execPath, MAIN, ...words, '--', 'true']);
    expect((await inner('record', '-f')).code).toBe(0);
    expect((await inner('run', '-v')).code).toBe(0);
  });
});

it('files that were left open for the command are open', () => {
  const list = 'for f in /proc/$$/fd/*; do test "$(readlink $f)" = /dev/null || echo "$(basename $f)"; done';
  const open = (prefix: string) => shell(`echo nine > file; ${prefix} sh -c 'cat <&9; ${list}' 9<file`).stdout;
  const alone = open('');
  expect(alone).toMatch(/^nine\n/);
  expect(open('node "$MAIN" run -q --')).toBe(alone);
});

it.skipIf(!isThere('python3'))('a pipe of which both ends were left open is open at both', () => {
  // As make leaves its job server to what it runs.
  const look = 'import os,sys; os.write(int(sys.argv[2]), b"x"); print(os.read(int(sys.argv[1]), 1).decode())';
  const give = `import os,sys; r,w = os.pipe(); [os.set_inheritable(f, True) for f in (r,w)]; os.execvp(sys.argv[1], [*sys.argv[1:], str(r), str(w)])`;
  const result = spawnSync('python3', ['-c', give, process.execPath, MAIN, 'run', '-q', '--', 'python3', '-c', look], { encoding: 'utf8' });
  expect(result.stdout).toBe('x\n');
});

it.skipIf(!isThere('script'))('a terminal is open as often as without us', () => {
  writeFileSync(join(run.path, 'list.sh'), 'for f in /proc/self/fd/*; do readlink $f; done | grep -c ^/dev/pts > seen');
  const seen = (prefix: string) => {
    shell(`script -qec '${prefix} sh list.sh' /dev/null < /dev/null`);
    return readFileSync(join(run.path, 'seen'), 'utf8');
  };
  const alone = seen('');
  expect(Number(alone)).toBeGreaterThan(0);
  expect(seen(`node ${MAIN} run -q --`)).toBe(alone);
});

it('a pipe that others write to after us is as it was', () => {
  const result = shell(`(node "$MAIN" --version; head -c 300000 /dev/zero) | (sleep 1; wc -c)`);
  expect(result.stdout.trim()).toBe('300006');
});

it('a folder for temporary files that is not there keeps no job from running', async () => {
  const { code, stdout, stderr } = await run.weir(['run', '--', 'echo', 'on'], { TMPDIR: '/nonexistent' });
  expect([code, stdout]).toEqual([0, 'on\n']);
  expect(stderr).toContain('the summary will not say what other allocators would have needed');
});

it('a percent sign in the name of a recording is written twice', async () => {
  expect((await run.weir(['run', '-q', '--record', '50%%.weir', '--', 'true'])).code).toBe(0);
});

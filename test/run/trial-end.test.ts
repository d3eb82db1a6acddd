// Which processes belong to a trial run: those that it started, whatever their session, and never others that got a number again.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, test } from 'vitest';
import { identityOf, isAlive } from '../../src/run/child/folder-owner.ts';
import { descendantsOf, TrialEnd } from '../../src/run/trying/trial-end.ts';

const started: ChildProcess[] = [];
const lasting: number[] = [];

afterEach(() => {
  for (const child of started.splice(0)) child.kill('SIGKILL');
  for (const pid of lasting.splice(0)) if (identityOf(pid)) process.kill(pid, 'SIGKILL');
});

/** A shell that prints the number of a process that it started in a session of its own. */
async function shell(script = 'setsid sleep 300 & echo $!; wait'): Promise<{ child: ChildProcess; inner: number }> {
  const child = spawn('sh', ['-c', script], { stdio: ['ignore', 'pipe', 'ignore'] });
  started.push(child);
  const inner = Number(String((await once(child.stdout!, 'data'))[0]));
  lasting.push(inner);
  return { child, inner };
}

describe.skipIf(process.platform !== 'linux')('processes of a trial run', () => {
  test('are all that it started, in whatever session', async () => {
    const { child, inner } = await shell();
    expect(descendantsOf(identityOf(child.pid!)!).map(({ pid }) => pid)).toContain(inner);
  });

  test('are not those of another process that got its number', async () => {
    const { child } = await shell();
    const { pid, started: since } = identityOf(child.pid!)!;
    expect(descendantsOf({ pid, started: String(Number(since) - 1) })).toEqual([]);
  });

  test('end on a signal, and no other does', async () => {
    const [own, other] = [await shell(), await shell()];
    const [inner, foreign] = [identityOf(own.inner)!, identityOf(other.inner)!];
    const end = new TrialEnd(['SIGUSR2'], 2000);
    end.watch(own.child.pid);
    process.kill(process.pid, 'SIGUSR2');
    await once(own.child, 'exit');
    await end.finish();
    for (let turn = 0; isAlive(inner) && turn < 100; turn++) await sleep(20);
    expect([isAlive(inner), isAlive(foreign)]).toEqual([false, true]);
  });
});

// What was written is out before the process ends, however slow the reader is.
import { Writable } from 'node:stream';
import { expect, it } from 'vitest';
import { written } from '../../src/cli/leave.ts';

it('waits for a slow reader, also for a little that fills no buffer', async () => {
  const out: string[] = [];
  const slow = new Writable({
    write(chunk, _encoding, done) {
      setTimeout(() => {
        out.push(String(chunk));
        done();
      }, 20);
    },
  });
  slow.write('first');
  slow.write('second');
  await written(slow);
  expect(out.join(' ').trim()).toBe('first second');
  await written(slow);
});

it('does not wait for a reader that has gone', async () => {
  const gone = new Writable({ write: (_chunk, _encoding, done) => done(new Error('EPIPE')) });
  gone.on('error', () => {});
  gone.write('nobody reads this');
  await written(gone);
  await written(gone);
});

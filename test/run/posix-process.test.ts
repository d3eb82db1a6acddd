// Starting a program by posix_spawn where the system refuses something.
import { fstatSync } from 'node:fs';
import { expect, test } from 'vitest';
import { PosixProcess } from '../../src/run/child/posix-process.ts';

test('without a pipe the program is not started, and our own input stays open', () => {
  const calls: string[] = [];
  const system = new Proxy({} as Parameters<typeof PosixProcess.start>[0], {
    get: (_target, name) => () => {
      calls.push(String(name));
      return name === 'pipe' ? -1 : 0;
    },
  });
  const options = { command: ['true'], environment: {}, stdio: ['ignore', 'inherit', 'pipe'] as const, ignoresHangUp: false };
  expect(() => PosixProcess.start(system, options)).toThrow(expect.objectContaining({ code: 'EMFILE' }));
  expect(calls).toContain('pipe');
  expect(calls).not.toContain('spawn');
  expect(() => fstatSync(0)).not.toThrow();
});

// Call sites as people read them: the innermost frame of their own code, with the file's last two names.
import { describe, expect, it } from 'vitest';
import { labelOf } from '../../src/report/sites.ts';
import { Symbols } from '../../src/trace/symbols.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { forgeTrace } from '../support/forged.ts';

/** The label of a stack, innermost frame first. */
function label(...files: readonly string[]): string {
  const symbols = new Symbols();
  const frames = files.map((file, line) => symbols.frames.intern(symbols.internString('f'), symbols.internString(file), line + 1));
  const stack = frames.reduceRight((outer, frame) => symbols.stacks.push(outer, frame), -1);
  const trace: Trace = { ...forgeTrace([]), symbols };
  return labelOf(trace, stack, false);
}

describe('a call site', () => {
  it('is the innermost frame outside of libraries', () => {
    expect(label('/env/lib/site-packages/torch/nn/linear.py', '/home/me/model.py', '/home/me/train.py')).toBe('me/model.py:2 f');
  });

  it('of a job on Windows is the same', () => {
    expect(label('C:\\env\\Lib\\site-packages\\torch\\nn\\linear.py', 'C:\\me\\model.py')).toBe('me/model.py:2 f');
  });

  it('in libraries alone is their innermost frame', () => {
    expect(label('/env/lib/site-packages/torch/nn/linear.py')).toBe('nn/linear.py:1 f');
  });
});

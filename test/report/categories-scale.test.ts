// Inputs on which work that grows with the square of the recording could not finish.
import { describe, expect, it } from 'vitest';
import { PhaseMark } from '../../src/abi/events.ts';
import { categoriesAt, categoryOfAllocation } from '../../src/report/categories.ts';
import { scripted } from '../support/scripted.ts';

const MANY = 300_000;
const PARAMETER = 1;

describe('categories of large recordings', () => {
  it('read each frame of a deep recursion once', () => {
    const trace = scripted((script) => {
      let stack = -1;
      for (let depth = 0; depth < MANY; depth++) {
        stack = script.push(stack, ['/p/tree.py', depth % 7, 'visit']);
        script.allocAt(stack, 512);
      }
    });
    expect(categoriesAt(trace, trace.events.count - 1).live).toBe(512 * MANY);
  });

  it('do not search all phases for every allocation', () => {
    const trace = scripted((script) => {
      script.mark(PhaseMark.optimizer);
      for (let turn = 0; turn < MANY; turn++) {
        script.mark(PhaseMark.backward);
        script.alloc(512, [['/p/a.py', 1, 'keep']]);
        script.mark(PhaseMark.forward);
        script.free(script.alloc(512, [['/p/a.py', 2, 'use']]));
      }
    });
    expect(categoriesAt(trace, trace.events.count - 1).live).toBe(512 * MANY);
  });

  it('are told of memory older than the recording as often as the process likes', () => {
    const address = 0x7f00_0000_0000;
    const trace = scripted((script) => {
      for (let turn = 0; turn < MANY; turn++) script.tell(address, PARAMETER);
      script.free({ address, size: 512 });
    });
    expect(categoryOfAllocation(trace, 0)).toEqual({ category: 'parameter', way: 'told' });
  });
});

// What a process tells of its memory, from its call to the recording: adapter, ring, supervisor, file, report. On the stand-in GPU.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { PhaseMark } from '../../src/abi/events.ts';
import { MIB } from '../../src/base/bytes.ts';
import { categoriesAt } from '../../src/report/categories.ts';
import { summarizeTrace } from '../../src/trace/summary.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { Standin, whyNoStandin } from '../support/standin.ts';

const reason = whyNoStandin();

describe.skipIf(reason !== undefined)(`what a process tells${reason ? ` (skipped: ${reason})` : ''}`, () => {
  const standin = new Standin();

  test('is in its recording', async () => {
    const script = `import torch, standin_gpu
from weir_gpu import adapter
from weir_gpu.abi import Category
MIB = 1 << 20
weight, state = standin_gpu.Block(8 * MIB), standin_gpu.Block(16 * MIB)
activation = standin_gpu.Block(4 * MIB)
adapter.categories(0, {weight.address: Category.PARAMETER, state.address: Category.OPTIMIZER_STATE})
adapter.categories(7, {weight.address: Category.BUFFER})
adapter.mark("${PhaseMark.backward}")
gradient, scratch = standin_gpu.Block(8 * MIB), standin_gpu.Block(2 * MIB)
scratch.free(); activation.free()
adapter.mark("${PhaseMark.forward}")
adapter.categories(0, {gradient.address: Category.GRADIENT})
adapter.mark("${PhaseMark.optimizer}")
adapter.mark("${PhaseMark.step}")`;
    const result = await standin.python(script, { WEIR: '1', WEIR_RECORD: 'told.weir' });
    expect(result.code, result.stderr).toBe(0);
    const [name] = readdirSync(standin.folder).filter((file) => /^told\.\d+\.weir$/.test(file));
    const [trace] = readWeir(readFileSync(join(standin.folder, name!))).traces;
    const { live, bytes, ways } = categoriesAt(trace!, summarizeTrace(trace!).peakLiveEvent);
    expect(live).toBe(38 * MIB);
    expect(bytes).toMatchObject({ parameter: 8 * MIB, optimizerState: 16 * MIB, gradient: 8 * MIB });
    expect(bytes).toMatchObject({ activation: 4 * MIB, temporary: 2 * MIB, unknown: 0, buffer: 0 });
    expect(ways).toMatchObject({ told: 32 * MIB, phases: 6 * MIB });
  });
});

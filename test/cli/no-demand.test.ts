// Recordings in which nobody asks for memory: cut before their first event, or snapshots of cached memory only.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, describe, expect, it } from 'vitest';
import { ENGINE_SETTINGS } from '../../src/abi/settings.ts';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { InputError } from '../../src/base/errors.ts';
import { planInputOf } from '../../src/plan/files/plan-input.ts';
import { findStep } from '../../src/plan/steps/step-plan.ts';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { formatAnalysis } from '../../src/report/terminal/analysis.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { WEIR } from '../fuzz/formats/weir.ts';
import { mutate } from '../fuzz/mutate.ts';
import { Random } from '../fuzz/random.ts';
import { cutBeforeFirstEvent } from '../support/beginning.ts';
import { weir } from '../support/command.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-no-demand-'));
afterAll(() => rmSync(folder, { recursive: true }));

const ENGINE_RUN = gunzipSync(readFileSync(new URL('../run/h200-weir.weir.gz', import.meta.url)));
const PYTORCH_RUN = gunzipSync(readFileSync(new URL('../run/h200-pytorch.weir.gz', import.meta.url)));

const SEGMENT = {
  device: 0,
  address: 0x7f0000000000,
  total_size: 20971520,
  allocated_size: 0,
  active_size: 0,
  requested_size: 0,
  stream: 0,
  segment_type: 'large',
  segment_pool_id: [0, 0],
  is_expandable: false,
  frames: [],
  blocks: [{ address: 0x7f0000000000, size: 20971520, requested_size: 0, state: 'inactive', frames: [] }],
};

function file(name: string, content: string | Uint8Array): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

const CUT = file('cut.weir', cutBeforeFirstEvent(ENGINE_RUN));
const CACHED = file(
  'cached.json',
  JSON.stringify({ segments: [SEGMENT], device_traces: [[]], allocator_settings: {}, external_annotations: [] }),
);

describe('a recording that was cut before its first event', () => {
  it.each(['analyze', 'replay', 'plan'])('weir %s says what it lacks', async (command) => {
    expect(await weir([command, CUT])).toMatchObject({
      code: 3,
      stdout: '',
      stderr: `weir: ${CUT}: the recording holds neither events nor segments: there is nothing to replay, compare or plan\n`,
    });
  });

  it('is converted and shown as it is', async () => {
    const copy = join(folder, 'copy.weir');
    expect(await weir(['convert', CUT, copy, '--quiet'])).toMatchObject({ code: 0 });
    expect(await weir(['replay', copy])).toMatchObject({ code: 3, stderr: expect.stringContaining('neither events nor segments') });
    expect(await weir(['report', CUT, '-o', join(folder, 'cut.html'), '--quiet'])).toMatchObject({ code: 0 });
  });
});

describe('a snapshot of cached memory', () => {
  const lacks = '1 segment (20 MiB) without a live block, but no request for memory';

  it('is analyzed without comparing allocators', async () => {
    const { code, stdout } = await weir(['analyze', CACHED]);
    expect(code).toBe(0);
    expect(stdout).toContain(lacks);
    expect(stdout).toContain('Peak: 20 MiB reserved');
    expect(stdout).not.toContain('smallest GPU');
    expect(JSON.parse((await weir(['analyze', CACHED, '--json'])).stdout)).toMatchObject({ whatIf: [] });
  });

  it.each(['replay', 'plan'])('weir %s has nothing to do', async (command) => {
    expect(await weir([command, CACHED])).toMatchObject({ code: 3, stdout: '', stderr: expect.stringContaining(lacks) });
  });
});

describe('damaged recordings', () => {
  it('500 of them end in an answer or in a sentence about the file', () => {
    const random = new Random(16);
    const seeds = [ENGINE_RUN, PYTORCH_RUN].flatMap((bytes) => [400, 900, 3000].map((length) => bytes.subarray(0, length)));
    const aboutSettings = new RegExp(ENGINE_SETTINGS.join('|'));
    let read = 0;
    for (let round = 0; round < 500; round++) {
      try {
        for (const trace of readRecording(mutate(WEIR, seeds, random)).traces) {
          formatAnalysis(analyzeTrace(trace, { allocators: chooseAllocators('pytorch,expandable,gmlake,weir') }), 'file');
          const input = planInputOf(trace, false);
          if (input.kind === 'operations') findStep(input.ops);
          read++;
        }
      } catch (error) {
        if (!(error instanceof InputError)) throw error;
        expect(error.message).not.toMatch(aboutSettings);
      }
    }
    expect(read).toBeGreaterThan(50);
  });
});

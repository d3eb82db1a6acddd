// Memory that is not PyTorch's, with a management library that stands in for NVIDIA's: in the metrics, the summary, the recording and
// the analysis of one run, the same figures everywhere.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { MIB } from '../../src/base/bytes.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { outcomeOf, ROOT, weir } from '../support/command.ts';
import { job, RunFolder } from '../support/run-folder.ts';

const library = mkdtempSync(join(tmpdir(), 'weir-nvml-'));
afterAll(() => rmSync(library, { recursive: true }));
const source = new URL('test/backend/nvml.c', ROOT).pathname;
const built = spawnSync('cc', ['-shared', '-fPIC', '-o', join(library, 'libnvidia-ml.so.1'), source]);

/** The GPU has 1000 MiB, of which 300 are free; the job has 500, of which the allocator holds 100. */
const GPU = { LD_LIBRARY_PATH: library, NVML_UNIT: String(MIB), NVML_CHILDREN: '1' };

describe.skipIf(built.status !== 0)(`memory that is not PyTorch's${built.status === 0 ? '' : ' (skipped: no C compiler)'}`, () => {
  const run = new RunFolder();

  it('is in the metrics, the summary, the recording and the analysis', async () => {
    const child = run.start(
      ['record', '--no-what-if', '--metrics', '0', '-o', 'x.weir', '--json-file', 'summary.json', ...job('hold=10', 'pause=5000')],
      { ...GPU, FAKE_TOTAL: String(1000 * MIB) },
    );
    const ended = outcomeOf(child);
    let said = '';
    child.stderr!.on('data', (chunk: Buffer) => {
      said += chunk.toString();
    });
    await expect.poll(() => /http:\S+metrics/.exec(said)?.[0], { timeout: 60_000 }).toBeDefined();
    const url = /http:\S+metrics/.exec(said)![0];
    const figure = async (name: string) => {
      const text = await fetch(url).then(
        (answer) => answer.text(),
        () => '',
      );
      return Number(new RegExp(`^${name}\\{[^}]*\\} (\\S+)$`, 'm').exec(text)?.[1] ?? Number.NaN);
    };
    while (Number.isNaN(await figure('weir_other_bytes'))) {
      if (child.exitCode !== null) break;
      await sleep(20);
    }
    const figures = ['weir_device_used_bytes', 'weir_other_bytes', 'weir_context_bytes'];
    expect(await Promise.all(figures.map(figure))).toEqual([700 * MIB, 600 * MIB, 400 * MIB]);
    const { code, stderr } = await ended;
    expect(code).toBe(0);
    const words = '600 MiB (CUDA context, NCCL and libraries of this process 400 MiB, other processes 200 MiB)';
    expect(stderr).toContain(`weir:   memory that is not PyTorch's: ${words}\n`);
    const other = { total: 1000 * MIB, used: 700 * MIB, reserved: 100 * MIB, process: 500 * MIB };
    expect(run.readJson('summary.json').processes[0].gpus[0].otherMemory).toEqual(other);
    const [name] = run.traces();
    const path = join(run.path, name!);
    expect(readWeir(readFileSync(path)).traces[0]!.otherMemory).toEqual(other);
    expect((await weir(['analyze', path])).stdout).toContain(`Memory that is not PyTorch's: ${words}.\n`);
    expect(JSON.parse((await weir(['analyze', path, '--json'])).stdout).otherMemory).toEqual(other);
  });
});

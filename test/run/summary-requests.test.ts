// Requests for a summary that are damaged, or cannot be answered: the supervisor goes on, and whoever asks gets an answer.
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { EXCHANGE_FILES } from '../../src/abi/exchange.ts';
import { Format } from '../../src/abi/formats.ts';
import type { RunSummary } from '../../src/run/summary/summary.ts';
import { SummaryRequests } from '../../src/run/summary/summary-requests.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-requests-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const EMPTY: RunSummary = {
  allocator: 'weir',
  command: ['python3'],
  end: { code: null, signal: null },
  wallMs: 1,
  limit: undefined,
  processes: [],
  idleProcesses: 0,
  whatIf: new Map(),
  keepsTraces: false,
  recorderMs: 0,
  refusals: [],
};
const REQUEST = { version: Format.exchange.version, id: 'one', whatIf: false, say: false };

function ask(requests: SummaryRequests, request: unknown): void {
  const name = `7${EXCHANGE_FILES.SummaryRequest}`;
  writeFileSync(join(folder, name), typeof request === 'string' ? request : JSON.stringify(request));
  requests.see(name);
}

async function answer() {
  const path = join(folder, `7${EXCHANGE_FILES.SummaryAnswer}`);
  while (!existsSync(path)) await sleep(5);
  const found = JSON.parse(readFileSync(path, 'utf8'));
  rmSync(path);
  return found;
}

describe('requests for a summary', () => {
  it('are answered once, with their id', async () => {
    const said: RunSummary[] = [];
    const requests = new SummaryRequests(folder, { summaryOf: async () => EMPTY, onFarewell: (summary) => void said.push(summary) });
    ask(requests, REQUEST);
    const found = await answer();
    expect(found).toMatchObject({ id: 'one', text: 'no process has used a GPU yet, so there is nothing to report' });
    expect(JSON.parse(found.json)).toMatchObject({ schema: 1, exitCode: null, processes: [] });
    ask(requests, REQUEST);
    ask(requests, { ...REQUEST, id: 'two', say: true });
    expect(await answer()).toMatchObject({ id: 'two' });
    expect(said).toEqual([EMPTY]);
    expect(readdirSync(folder)).toEqual([]);
  });

  it('that are damaged are removed', () => {
    const requests = new SummaryRequests(folder, { summaryOf: async () => EMPTY, onFarewell: () => {} });
    for (const damaged of ['', '{', '[]', 'null', JSON.stringify({ ...REQUEST, id: 3 })]) ask(requests, damaged);
    requests.see('8.profile.json');
    expect(readdirSync(folder)).toEqual([]);
  });

  it('that fail are answered with the reason', async () => {
    const requests = new SummaryRequests(folder, { summaryOf: () => Promise.reject(new Error('no room')), onFarewell: () => {} });
    ask(requests, REQUEST);
    expect(await answer()).toMatchObject({ id: 'one', text: 'there is no summary: no room', json: '{}' });
  });
});

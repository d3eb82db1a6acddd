// `npm run bench:gpu:replay -- FILE...`: replays recorded runs with real memory on a GPU, and compares measured driver time with the
// model. Every block is filled, and compared when it is freed, through the mapping that the allocator returned.
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { provenanceOf } from './provenance.ts';

const files = process.argv.slice(2);
if (files.length === 0) {
  console.error('usage: npm run bench:gpu:replay -- FILE...   (recordings to replay on this GPU)');
  process.exit(2);
}
const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));

interface Result {
  readonly allocator: string;
  readonly peakReserved: number;
  readonly reservedOverLive: number;
  readonly ooms: number;
  readonly driver: { readonly timeUs: number; readonly calls: Record<string, number> };
  readonly modelled: { readonly timeUs: number };
  readonly verification: { readonly blocks: number; readonly bytes: number };
  readonly deviceDescription: string;
}

const traces = files.map((file) => {
  const output = execFileSync(
    process.execPath,
    [main, 'replay', file, '--backend', 'cuda', '--allocator', 'pytorch,expandable,gmlake[minStitch:2MiB],weir', '--json'],
    {
      encoding: 'utf8',
      maxBuffer: 2 ** 26,
    },
  );
  const { results } = JSON.parse(output) as { results: Result[] };
  console.log(basename(file));
  for (const { allocator, peakReserved, reservedOverLive, driver, modelled, verification } of results) {
    console.log(
      `  ${allocator.padEnd(26)} ${(peakReserved / 2 ** 30).toFixed(2)} GiB, ${reservedOverLive.toFixed(4)} of live; driver ${(driver.timeUs / 1e3).toFixed(1)} ms measured, ${(modelled.timeUs / 1e3).toFixed(1)} ms modelled (${(driver.timeUs / modelled.timeUs).toFixed(2)}); ${verification.blocks} blocks, ${(verification.bytes / 2 ** 30).toFixed(0)} GiB verified`,
    );
  }
  return { file: basename(file), results };
});
mkdirSync('bench/results', { recursive: true });
const source = provenanceOf(
  `npm run bench:gpu:replay -- ${files.map((file) => basename(file)).join(' ')}`,
  traces[0]!.results[0]!.deviceDescription,
);
const path = `bench/results/gpu-replay-${source.date}.json`;
writeFileSync(path, `${JSON.stringify({ ...source, traces }, null, 2)}\n`);
console.log(`written to ${path}`);

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { EventStore } from '../../src/trace/event-store.ts';
import { EventKind } from '../../src/trace/trace.ts';
import { MAJOR_VERSION, MINOR_VERSION, RecordType } from '../../src/trace/weir/format.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { WeirWriter } from '../../src/trace/weir/writer.ts';
import { bytesOf } from './weir-support.ts';

const PAGE = readFileSync(new URL('../../docs/trace-format.md', import.meta.url), 'utf8');

/** The file written by the C program in the documentation. */
function exampleFile(): Uint8Array {
  return bytesOf((sink) => {
    const writer = new WeirWriter(sink, { tool: 'example' });
    writer.device(0, {});
    writer.streams(0, [0]);
    writer.pools(0, [[0, 0]]);
    const store = new EventStore();
    store.append(EventKind.Alloc, 0x7f00_0000_0000, 1000, 1.7e15, 0, 0, -1, 0);
    store.setOptional(0, 'thread', 4711);
    writer.events(0, store.view());
    writer.end();
  });
}

function hexdump(bytes: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = Buffer.from(bytes.subarray(at, at + 16));
    const hex = row.toString('hex').replace(/(....)/g, '$1 ');
    const text = row.toString('latin1').replace(/[^ -~]/g, '.');
    lines.push(`${at.toString(16).padStart(8, '0')}: ${hex.padEnd(40)} ${text}`);
  }
  return lines.join('\n');
}

describe('docs/trace-format.md', () => {
  it('shows the bytes that are really written', () => {
    expect(PAGE).toContain(hexdump(exampleFile()));
    expect(readWeir(exampleFile()).traces[0]!.events.count).toBe(1);
  });

  it('names the current version and every record type and event kind by its number', () => {
    expect(PAGE).toContain(`# The \`.weir\` trace format, version ${MAJOR_VERSION}.${MINOR_VERSION}\n`);
    for (const [name, type] of Object.entries(RecordType)) expect(PAGE).toContain(`\n| ${type} | ${name} | `);
    const kinds = PAGE.slice(PAGE.indexOf('| kind | name | address'), PAGE.indexOf('Events of one GPU'));
    const numbers = [...kinds.matchAll(/^\| (\d+) \|/gm)].map(([, number]) => Number(number));
    expect(numbers).toEqual(Object.values(EventKind));
  });

  it('has a C program that writes this very file', (context) => {
    const folder = mkdtempSync(join(tmpdir(), 'weir-docs-'));
    try {
      writeFileSync(join(folder, 'example.c'), PAGE.match(/```c\n([\s\S]*?)```/)![1]!);
      try {
        execFileSync('cc', ['-Wall', '-Wextra', '-Werror', '-o', 'example', 'example.c', '-lz'], { cwd: folder, stdio: 'pipe' });
      } catch (error) {
        const reason = String((error as { stderr?: unknown }).stderr ?? error);
        // Skipped only if the machine has no compiler or no zlib.
        if (/ENOENT|zlib\.h: No such file|cannot find -lz/.test(reason)) return context.skip();
        throw new Error(reason);
      }
      execFileSync('./example', { cwd: folder });
      expect(new Uint8Array(readFileSync(join(folder, 'example.weir')))).toEqual(exampleFile());
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

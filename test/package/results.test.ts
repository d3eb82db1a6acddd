// docs/results.md, and the table in the README, are what the committed results of benchmarks say.
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { ROOT } from '../support/command.ts';

describe('docs/results.md', () => {
  const page = readFileSync(new URL('docs/results.md', ROOT), 'utf8');

  it('is what bench/results says', () => {
    const { status, stderr } = spawnSync(process.execPath, ['scripts/results.mjs', '--check'], { cwd: ROOT.pathname, encoding: 'utf8' });
    expect([status, stderr]).toEqual([0, '']);
  });

  it('says of each table what it shows and where it comes from', () => {
    const sections = page.split(/^### /m).slice(1);
    expect(sections.length).toBeGreaterThan(20);
    for (const section of sections) {
      expect(section).toMatch(/^[^\n]+\n\n[A-Z][^|\n]+\n\n\|[\s\S]+\|\n\nMeasured \d{4}-\d\d-\d\d on .+ by .+\. Code: .+\. Raw: \[/);
      const [header] = section.split('\n').filter((line) => line.startsWith('|'));
      expect(header, 'a column without a header').not.toMatch(/\|\s+\|/);
    }
  });

  it('links to every result, and only to files that are there', () => {
    const links = [...page.matchAll(/\]\(\.\.\/bench\/results\/([^)]+)\)/g)].map((match) => match[1]!.replace(/\.\w+$/, ''));
    const files = readdirSync(new URL('bench/results', ROOT)).filter((name) => name !== 'runs.json');
    expect(new Set(links)).toEqual(new Set(files.map((name) => name.replace(/\.\w+$/, ''))));
  });

  it('has a heading for each entry of its contents', () => {
    const headings = [...page.matchAll(/^#{2,3} (.+)$/gm)].map((match) => match[1]!);
    const entries = [...page.matchAll(/^ *- \[(.+)\]\(#.+\)$/gm)].map((match) => match[1]!);
    expect(entries).toEqual(headings.filter((heading) => heading !== 'Other files'));
  });
});

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

  it('shows the rows where Weir loses, what was set, and which figures are our own', () => {
    const row = (start: string) => page.split('\n').filter((line) => line.startsWith(start));
    expect(row('| ResNet-50, batch 100 |').join()).toContain('given up: plans that saved 1.1 and 0.3 GiB cost 16 and 4 % of a step');
    expect(row('| OPT-1.3B, lengths vary |')[0]).toMatch(/\| 1\.028 \|$/);
    expect(row('| two BERT on two streams | 1.154 |')).toHaveLength(1);
    expect(row('| OPT-1.3B, one length | weir run --swap 22.00GiB').join()).toContain('| 986 (3.93), 912 | any |');
    expect(row('| 647.7 |').join()).toContain('| 338.4 |');
    expect(row('| VGG-16, batch 100 | 8823.2 |').join()).toContain('| 19.1 % |');
    expect(row('| 65,536 |')).toEqual(['| 65,536 | 55.9 | 53.7 | 59.0 | 54.6 |']);
    expect(page).toContain('That of pangu_2.6B is our own replay');
    expect(page).toContain('the other two are our own replays');
    expect(page).toContain('Code: 2b0e689 (the code has changed since)');
    expect(page).toMatch(/peaks alternate is generated/);
  });

  it('has a heading for each entry of its contents', () => {
    const headings = [...page.matchAll(/^#{2,3} (.+)$/gm)].map((match) => match[1]!);
    const entries = [...page.matchAll(/^ *- \[(.+)\]\(#.+\)$/gm)].map((match) => match[1]!);
    expect(entries).toEqual(headings.filter((heading) => heading !== 'Other files'));
  });
});

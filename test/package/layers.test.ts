// The linter really refuses imports against the layers, and impure imports in the pure ones.
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { ROOT } from '../support/command.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-layers-'));
copyFileSync(new URL('biome.json', ROOT), join(folder, 'biome.json'));
afterAll(() => rmSync(folder, { recursive: true }));

/** What the linter says of a file in src/LAYER of a project with our rules. */
function lint(layer: string, source: string): string {
  mkdirSync(join(folder, 'src', layer), { recursive: true });
  writeFileSync(join(folder, 'src', layer, 'probe.ts'), source);
  const biome = new URL('node_modules/.bin/biome', ROOT).pathname;
  const { stdout, stderr } = spawnSync(biome, ['lint', `src/${layer}`], { cwd: folder, encoding: 'utf8' });
  return stdout + stderr;
}

describe('the linter', () => {
  it.each([
    ['base', '../trace/trace.ts'],
    ['trace', '../replay/replay.ts'],
    ['device', '../allocator/allocator.ts'],
    ['allocator', '../replay/replay.ts'],
    ['replay', '../report/text.ts'],
    ['report', '../cli/input.ts'],
    ['report', '../view/session.ts'],
    ['view', '../server/app.ts'],
    ['server', '../cli/input.ts'],
    ['server', '../run/child.ts'],
    ['run', '../cli/input.ts'],
  ])('refuses src/%s importing %s', (layer, module) => {
    expect(lint(layer, `import * as other from '${module}';\nexport const probe = other;\n`)).toContain(
      `src/${layer} may import only from`,
    );
  });

  it.each(['base', 'trace', 'allocator', 'replay', 'report', 'view'])('keeps src/%s free of the file system', (layer) => {
    expect(lint(layer, `import * as fs from 'node:fs';\nexport const probe = fs;\n`)).toContain(`src/${layer} is pure`);
  });

  it('accepts imports that point downward', () => {
    expect(lint('report', `import * as trace from '../trace/trace.ts';\nexport const probe = trace;\n`)).not.toContain(
      'may import only from',
    );
  });
});

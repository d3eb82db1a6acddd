// The documentation says of every version of PyTorch what the table in abi/ says.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { withVersions } from '../../scripts/versions.mjs';
import { PYTORCH_TRUST, PYTORCH_VERSIONS } from '../../src/abi/pytorch.ts';
import { ROOT } from '../support/command.ts';

const PAGE = readFileSync(new URL('docs/versions.md', ROOT), 'utf8');

describe('docs/versions.md', () => {
  it('has the table of abi/pytorch.ts; node scripts/versions.mjs writes it', () => {
    expect(PAGE).toBe(withVersions(PAGE));
    expect(PAGE).toContain(`| ${PYTORCH_VERSIONS.at(-1)!.version} | ${PYTORCH_TRUST[PYTORCH_VERSIONS.at(-1)!.trust]} |`);
  });

  it('explains every level', () => {
    for (const words of Object.values(PYTORCH_TRUST)) expect(PAGE).toContain(`\n- *${words}*: `);
  });
});

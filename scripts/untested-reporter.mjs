// The last line of a test run: how many tests were skipped, and why. On a bare machine that is everything inside Python.
// If WEIR_NOT_TESTED names a file, the line goes there instead, for a caller that prints it last.
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

const REASON = /\(skipped: (.*)\)/;

export default class UntestedReporter {
  onInit(vitest) {
    this.vitest = vitest;
  }

  onTestRunEnd(modules) {
    // Tests that a pattern left out were not asked for.
    if (this.vitest.config.testNamePattern) return;
    const skipped = [];
    for (const module of modules) {
      for (const test of module.children.allTests('skipped')) skipped.push({ file: module.relativeModuleId, name: test.fullName });
    }
    const line = untestedLine(skipped);
    if (line === undefined) return;
    const path = process.env.WEIR_NOT_TESTED;
    if (path === undefined) {
      process.stdout.write(`${line}\n`);
      return;
    }
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, `${line}\n`);
  }
}

/** One line about tests that were skipped; undefined if there are none. The reason stands in a test's name, or in its group's. */
export function untestedLine(skipped) {
  if (skipped.length === 0) return undefined;
  const groups = new Map();
  for (const { file, name } of skipped) {
    const reason = REASON.exec(name)?.[1];
    const key = reason === undefined ? `in ${file}` : `in ${file}, because ${reason}`;
    groups.set(key, (groups.get(key) ?? 0) + 1);
  }
  const parts = Array.from(groups, ([where, count]) => `${count} ${where}`);
  return `Not tested: ${skipped.length} ${skipped.length === 1 ? 'test' : 'tests'}: ${parts.join('; ')}.`;
}

import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    reporters: ['default', './scripts/untested-reporter.mjs'],
    include: ['test/**/*.test.ts'],
    // Left to itself vitest keeps one core free, which on two cores doubles the time.
    maxWorkers: Math.max(2, availableParallelism() - 1),
    testTimeout: 240_000,
    hookTimeout: 240_000,
  },
});

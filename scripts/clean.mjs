// Removes what earlier builds have left in dist/, so that a package never holds a module that is gone. Called before packing.
import { rmSync } from 'node:fs';

for (const path of ['dist', 'build/src.tsbuildinfo']) rmSync(new URL(`../${path}`, import.meta.url), { recursive: true, force: true });

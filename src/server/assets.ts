// The files of the built page, read once from a fixed list. No other file on the disk can be requested.
import { readFileSync } from 'node:fs';
import type { PageParts } from '../view/report-page.ts';

export interface Asset {
  readonly type: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

const FILES = {
  'index.html': 'text/html; charset=utf-8',
  'app.js': 'text/javascript; charset=utf-8',
  'app.css': 'text/css; charset=utf-8',
  'worker.js': 'text/javascript; charset=utf-8',
  'icon.svg': 'image/svg+xml',
  'example.pickle.gz': 'application/octet-stream',
} as const;

export type Assets = Readonly<Record<keyof typeof FILES, Asset>>;

/** The parts of a page that is one file. */
export function pageParts(assets: Assets): PageParts {
  const textOf = (name: keyof Assets) => Buffer.from(assets[name].bytes).toString('utf8');
  return { script: textOf('app.js'), style: textOf('app.css'), worker: textOf('worker.js'), icon: textOf('icon.svg') };
}

/** Reads the built page. Default folder: `web`, beside the folder of this module. */
export function readAssets(folder: URL = new URL('../web/', import.meta.url)): Assets {
  const entries = Object.entries(FILES).map(([name, type]) => {
    const bytes = new Uint8Array(readFileSync(new URL(name, folder)));
    return [name, { type, bytes }];
  });
  return Object.fromEntries(entries) as Assets;
}

// The files of the built page, read once from a fixed list. No other file on the disk can be requested.
import { readFileSync } from 'node:fs';

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

/** Reads the built page. Default folder: `web`, beside the folder of this module. */
export function readAssets(folder: URL = new URL('../web/', import.meta.url)): Assets {
  const entries = Object.entries(FILES).map(([name, type]) => {
    const bytes = new Uint8Array(readFileSync(new URL(name, folder)));
    return [name, { type, bytes }];
  });
  return Object.fromEntries(entries) as Assets;
}

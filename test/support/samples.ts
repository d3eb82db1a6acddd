// The recordings in samples/, decompressed.
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

const ROOT = findRoot();

/** The content of a file in samples/, such as `exact/s1.pickle`; a `.gz` is decompressed. */
export function readSample(name: string): Uint8Array {
  const bytes = readFileSync(new URL(`samples/${name}`, ROOT));
  return name.endsWith('.gz') ? gunzipSync(bytes) : bytes;
}

// The compiled tests lie one folder deeper than their sources.
function findRoot(): URL {
  const here = new URL('../../', import.meta.url);
  return here.pathname.endsWith('/build/') ? new URL('../', here) : here;
}

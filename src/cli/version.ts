// The version of this package, from its package.json.
import { readFileSync } from 'node:fs';

export function readVersion(): string {
  const packageJson = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(packageJson) as { version: string }).version;
}

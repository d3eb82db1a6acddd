// Types of layers.mjs, for its test.
interface Layer {
  readonly name: string;
  readonly runs: 'Node' | 'browser' | 'any';
  readonly about: string;
  readonly imports: readonly string[];
  readonly packages: readonly string[];
  readonly nodeFiles?: readonly string[];
}
export const LAYERS: readonly Layer[];
export const ROOMS: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>>;
export const NATIVE_LOADER: string;
export const NATIVE_USERS: readonly string[];
export function importsOf(source: string): string[];
export function violationsIn(path: string, source: string): string[];
export function violations(files?: readonly (readonly [path: string, source: string])[]): string[];
export function withLayers(text: string): string;

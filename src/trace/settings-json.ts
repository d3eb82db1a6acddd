// Allocator settings as JSON text and back, keeping infinities and minus zero, which JSON.stringify loses.
import { InputError } from '../base/errors.ts';
import type { SettingValue } from './trace.ts';

/** PyTorch nests settings once (roundup_power2_divisions). */
const MAX_DEPTH = 16;

export function settingsToJson(settings: ReadonlyMap<string, SettingValue>): string {
  return `{${[...settings].map(([name, value]) => `${JSON.stringify(name)}:${valueToJson(value)}`).join(',')}}`;
}

export function settingsFromJson(json: unknown): ReadonlyMap<string, SettingValue> {
  const settings = valueFromJson(json, 0);
  if (!(settings instanceof Map)) throw new InputError('the allocator settings are not an object');
  return settings;
}

function valueToJson(value: SettingValue): string {
  if (value instanceof Map) return settingsToJson(value);
  if (typeof value === 'number') return numberToJson(value);
  return JSON.stringify(value);
}

/** JSON has no infinity. A number too large for a double is read as infinity, so we write that. */
export function numberToJson(value: number): string {
  if (Number.isNaN(value)) return 'null';
  if (!Number.isFinite(value)) return value > 0 ? '1e999' : '-1e999';
  return Object.is(value, -0) ? '-0' : String(value);
}

function valueFromJson(json: unknown, depth: number): SettingValue {
  if (depth > MAX_DEPTH) throw new InputError('the allocator settings are nested too deeply');
  if (json === null || typeof json === 'string' || typeof json === 'number' || typeof json === 'boolean') return json;
  if (Array.isArray(json)) return JSON.stringify(json);
  return new Map(Object.entries(json as object).map(([name, value]) => [name, valueFromJson(value, depth + 1)]));
}

// Dicts of a snapshot that are kept as they are: the allocator's settings by name.
import type { SettingValue } from '../trace.ts';
import type { Rows } from './rows.ts';
import { Tag } from './values.ts';

/** Settings are nested once, and there are a few dozen. Deeper values are not settings. */
const MAX_DEPTH = 8;
const MAX_SETTINGS = 2 ** 12;

/** `done` holds the dicts seen before, so that shared or cyclic ones are read once. */
export function settingsOf(
  rows: Rows,
  container: number,
  done: Map<number, ReadonlyMap<string, SettingValue>> = new Map(),
  depth = 0,
): ReadonlyMap<string, SettingValue> {
  const settings = new Map<string, SettingValue>();
  done.set(container, settings);
  rows.containers.forEachEntry(container, (key, tag, value) => {
    if (key < 0 || settings.size >= MAX_SETTINGS || done.size >= MAX_SETTINGS) return;
    const name = rows.strings.text(key);
    if (tag !== Tag.GenericDict) {
      const scalar = scalarOf(rows, tag, value);
      if (scalar !== undefined) settings.set(name, scalar);
    } else if (!done.has(value) && depth < MAX_DEPTH) {
      settings.set(name, settingsOf(rows, value, done, depth + 1));
    }
  });
  return settings;
}

function scalarOf(rows: Rows, tag: number, value: number): SettingValue | undefined {
  switch (tag) {
    case Tag.None:
      return null;
    case Tag.Bool:
      return value === 1;
    case Tag.Number:
      return value;
    case Tag.BigInt:
      return Number(rows.bigints[value]);
    case Tag.String:
      return rows.strings.text(value);
    case Tag.Dict:
      return new Map();
  }
  return undefined;
}

// Lookup tables of the exact search: neighbours, sections and their members, as flat lists.
// They are computed once per instance, and all its searches share them.
import { findNeighbours, type Instance, type Neighbours } from './instance.ts';

export interface ExactTables {
  readonly instance: Instance;
  readonly neighbours: Neighbours;
  /** Buffers of section s: `members[memberStart[s]..memberStart[s + 1])`. */
  readonly memberStart: Int32Array;
  readonly members: Int32Array;
  /** Sections of buffer b: `sectionsOf[sectionStart[b]..sectionStart[b + 1])`. */
  readonly sectionStart: Int32Array;
  readonly sectionsOf: Int32Array;
  /** The next buffer with the same size, alignment and lifetime; -1 for none. */
  readonly nextTwin: Int32Array;
}

const NONE = -1;

export function prepareExact(instance: Instance): ExactTables {
  const { count, sections, spanStart, spanLow, spanHigh } = instance;
  const sectionStart = new Int32Array(count + 1);
  const memberStart = new Int32Array(sections + 1);
  const eachSection = (buffer: number, visit: (section: number) => void) => {
    for (let span = spanStart[buffer]!; span < spanStart[buffer + 1]!; span++) {
      for (let section = spanLow[span]!; section < spanHigh[span]!; section++) visit(section);
    }
  };
  for (let buffer = 0; buffer < count; buffer++) {
    let held = 0;
    eachSection(buffer, (section) => {
      held++;
      memberStart[section + 1] = memberStart[section + 1]! + 1;
    });
    sectionStart[buffer + 1] = sectionStart[buffer]! + held;
  }
  for (let section = 0; section < sections; section++) memberStart[section + 1] = memberStart[section + 1]! + memberStart[section]!;
  const members = new Int32Array(memberStart[sections]!);
  const sectionsOf = new Int32Array(sectionStart[count]!);
  const filled = memberStart.slice();
  let at = 0;
  for (let buffer = 0; buffer < count; buffer++) {
    eachSection(buffer, (section) => {
      sectionsOf[at++] = section;
      members[filled[section]!] = buffer;
      filled[section] = filled[section]! + 1;
    });
  }
  return { instance, neighbours: findNeighbours(instance), memberStart, members, sectionStart, sectionsOf, nextTwin: findTwins(instance) };
}

function findTwins(instance: Instance): Int32Array {
  const { count, size, alignment, spanStart, spanLow, spanHigh } = instance;
  const nextTwin = new Int32Array(count).fill(NONE);
  const latest = new Map<string, number>();
  for (let buffer = count - 1; buffer >= 0; buffer--) {
    let key = `${size[buffer]}/${alignment[buffer]}`;
    for (let span = spanStart[buffer]!; span < spanStart[buffer + 1]!; span++) key += `/${spanLow[span]}-${spanHigh[span]}`;
    nextTwin[buffer] = latest.get(key) ?? NONE;
    latest.set(key, buffer);
  }
  return nextTwin;
}

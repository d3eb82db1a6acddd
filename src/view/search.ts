// Search by an address, a size, an event, or a text: part of a frame, a call site, a category, or a text of the program. The typed
// text itself shows which; where it could mean several things, all of them are searched.
import { formatBytes } from '../base/bytes.ts';
import { CATEGORY_NAMES, categoriesOf } from '../report/categories.ts';
import { CATEGORY_TITLES } from '../report/words/categories.ts';
import { formatCount } from '../report/words/numbers.ts';
import type { Notes } from '../trace/notes.ts';
import type { Trace } from '../trace/trace.ts';
import { nodeOf } from './flame.ts';
import type { History } from './history.ts';
import type { Moment } from './protocol.ts';
import { isBare, parseSize } from './sizes.ts';

/** What to look for. Whatever is undefined was not meant. */
export interface Query {
  readonly address?: number | undefined;
  readonly size?: { readonly atLeast: number; readonly atMost: number } | undefined;
  readonly event?: number | undefined;
  readonly text?: string | undefined;
}

/** A moment that was found: an event by its number, or an annotation by its name. */
export interface FoundMoment extends Moment {
  readonly what: string;
}

export interface SearchResult {
  /** Allocations found, in order of time; at most `MOST_HITS`. */
  readonly hits: readonly number[];
  /** How many allocations match. */
  readonly total: number;
  readonly moments: readonly FoundMoment[];
  /** What was searched, in words. */
  readonly searched: string;
}

/** What a search looks into. */
export interface Searched {
  readonly trace: Trace;
  readonly history: History;
  readonly notes: Notes;
  siteOf(allocation: number): string;
  /** The event in words. */
  describe(event: number): string;
  momentOf(event: number): Moment;
  /** The first moment at or after a time of the trace's clock. */
  momentAt(timeUs: number): Moment;
}

const MOST_HITS = 500;
const MOST_MOMENTS = 50;
/** A shorter text is in the name of nearly every category. */
const LEAST_CATEGORY = 3;

/** A rounded size matches all sizes that are shown like it: many sizes are shown as 2.76 GiB. */
const SHOWN_DIGITS = 0.005;

export function parseQuery(text: string): Query | undefined {
  const trimmed = text.trim();
  if (trimmed === '') return undefined;
  if (/^0x[0-9a-f]+$/i.test(trimmed)) return { address: Number(trimmed) };
  const event = /^(?:#|event\s+)([\d,_]+)$/i.exec(trimmed);
  if (event) return { event: Number(event[1]!.replace(/[,_]/g, '')) };
  const size = /^(>=?|<=?|=)?\s*(\d+(?:\.\d+)?\s*(?:[kmgt]i?b?|b)?)$/i.exec(trimmed);
  if (!size) return { text: trimmed };
  const found = { size: sizeRange(size[1] ?? '', size[2]!) };
  // A number alone may be a size in GiB, the number of an event, or part of a line of code.
  if (!isBare(trimmed)) return found;
  return { ...found, text: trimmed, ...(/^\d+$/.test(trimmed) && { event: Number(trimmed) }) };
}

function sizeRange(comparison: string, text: string): NonNullable<Query['size']> {
  const bytes = parseSize(text);
  if (comparison.startsWith('>')) return { atLeast: comparison === '>' ? bytes + 1 : bytes, atMost: Number.POSITIVE_INFINITY };
  if (comparison.startsWith('<')) return { atLeast: 0, atMost: comparison === '<' ? bytes - 1 : bytes };
  const digits = /\.(\d+)/.exec(text)?.[1]?.length ?? 0;
  const unit = parseSize(text.replace(/[\d.]+/, '1'));
  const slack = unit === 1 ? 0 : (unit * SHOWN_DIGITS * 100) / 10 ** digits;
  return { atLeast: bytes - slack, atMost: bytes + slack };
}

/** What matches the query. An event matches its allocation too. */
export function search(searched: Searched, query: Query): SearchResult {
  const { allocations } = searched.trace;
  const hits: number[] = [];
  let total = 0;
  const matches = matcherOf(searched, query);
  for (let index = 0; index < allocations.count; index++) {
    if (!matches(index)) continue;
    total++;
    if (hits.length < MOST_HITS) hits.push(index);
  }
  return { hits, total, moments: momentsOf(searched, query), searched: wordsFor(searched.trace, query) };
}

function momentsOf({ trace, describe, momentOf, momentAt }: Searched, { event, text }: Query): FoundMoment[] {
  const moments: FoundMoment[] = [];
  if (event !== undefined && event < trace.events.count) moments.push({ ...momentOf(event), what: describe(event) });
  if (text === undefined) return moments;
  const wanted = text.toLowerCase();
  for (const { name, stage, device, timeUs } of trace.annotations) {
    if (moments.length >= MOST_MOMENTS) break;
    if (stage === 'END' || device !== trace.device || !name.toLowerCase().includes(wanted)) continue;
    moments.push({ ...momentAt(timeUs), what: `annotation ${name}` });
  }
  return moments;
}

function wordsFor(trace: Trace, { address, size, event, text }: Query): string {
  const parts: string[] = [];
  if (address !== undefined) parts.push('addresses of blocks');
  if (event !== undefined) parts.push(`events (0 to ${formatCount(Math.max(0, trace.events.count - 1))})`);
  if (size) parts.push(`sizes of blocks (${rangeWords(size)})`);
  if (text !== undefined)
    parts.push('names and files of frames', 'call sites', 'categories', 'texts of the program (user_metadata, annotations)');
  return parts.join(', ');
}

function rangeWords({ atLeast, atMost }: NonNullable<Query['size']>): string {
  if (atMost === Number.POSITIVE_INFINITY) return `${formatBytes(atLeast)} or more`;
  if (atLeast === 0) return `up to ${formatBytes(atMost)}`;
  return `about ${formatBytes((atLeast + atMost) / 2)}`;
}

/** Whether an allocation matches the query: for the hits, and to fade the rest of the map. */
export function matcherOf(searched: Searched, { address, size, event, text }: Query): (allocation: number) => boolean {
  const { trace, history } = searched;
  const { allocations, allocationOf } = trace;
  const matchers: ((index: number) => boolean)[] = [];
  if (address !== undefined)
    matchers.push((index) => history.address[index]! <= address && address < history.address[index]! + history.size[index]!);
  if (size) matchers.push((index) => allocations.requested[index]! >= size.atLeast && allocations.requested[index]! <= size.atMost);
  if (event !== undefined) matchers.push((index) => allocationOf[event] === index);
  if (text !== undefined) matchers.push(...textMatchers(searched, text));
  return (index) => matchers.some((matches) => matches(index));
}

function textMatchers({ trace, notes, siteOf }: Searched, text: string): ((index: number) => boolean)[] {
  const wanted = text.toLowerCase();
  const inside = stacksWith(trace, text);
  // By stack: whether its call site has the text, which may say more than its frames.
  const sites = new Map<string, boolean>();
  const inSite = (index: number) => {
    const site = siteOf(index);
    let has = sites.get(site);
    if (has === undefined) {
      has = site.toLowerCase().includes(wanted);
      sites.set(site, has);
    }
    return has;
  };
  const inStack = (index: number) => {
    const node = nodeOf(trace, index);
    return node >= 0 && inside[node] === 1;
  };
  const inNotes = (index: number) => notes.of(index).some((note) => note.toLowerCase().includes(wanted));
  const matchers = [inStack, inSite, inNotes];
  const categories = new Set(
    CATEGORY_NAMES.filter((name) => wanted.length >= LEAST_CATEGORY && CATEGORY_TITLES[name].toLowerCase().includes(wanted)),
  );
  // Finding categories walks through all events, so it is done only if one was meant.
  if (categories.size > 0) matchers.push((index) => categories.has(categoriesOf(trace).of(index).category));
  return matchers;
}

/** By stack: whether one of its frames has the text in its name or file. */
export function stacksWith(trace: Trace, text: string): Uint8Array {
  const { stacks } = trace.symbols;
  const found = framesWith(trace, text);
  const inside = new Uint8Array(stacks.count);
  for (let stack = 0; stack < stacks.count; stack++) {
    const parent = stacks.parent(stack);
    inside[stack] = found[stacks.frame(stack)] === 1 || (parent >= 0 && inside[parent] === 1) ? 1 : 0;
  }
  return inside;
}

/** By frame: whether it has the text in its name or file. */
export function framesWith(trace: Trace, text: string): Uint8Array {
  const { frames, strings } = trace.symbols;
  const wanted = text.toLowerCase();
  const found = new Uint8Array(frames.count);
  for (let frame = 0; frame < frames.count; frame++) {
    const label = `${strings[frames.filename(frame)] ?? ''}:${frames.line(frame)} ${strings[frames.name(frame)] ?? ''}`;
    if (label.toLowerCase().includes(wanted)) found[frame] = 1;
  }
  return found;
}

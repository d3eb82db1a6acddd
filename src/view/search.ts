// Search by an address, a size, an event, or a part of a frame's name. The text itself shows which.
import { parseBytes } from '../base/bytes.ts';
import type { Trace } from '../trace/trace.ts';
import { nodeOf } from './flame.ts';
import type { History } from './history.ts';

export type Query =
  | { readonly kind: 'address'; readonly address: number }
  | { readonly kind: 'size'; readonly atLeast: number; readonly atMost: number }
  | { readonly kind: 'event'; readonly event: number }
  | { readonly kind: 'frame'; readonly text: string };

export interface SearchResult {
  readonly query: Query['kind'];
  /** Allocations found, in order of time; at most `MOST_HITS`. */
  readonly hits: readonly number[];
  readonly total: number;
}

const MOST_HITS = 500;

/** A rounded size matches all sizes that are shown like it: many sizes are shown as 2.76 GiB. */
const SHOWN_DIGITS = 0.005;

export function parseQuery(text: string): Query | undefined {
  const trimmed = text.trim();
  if (trimmed === '') return undefined;
  if (/^0x[0-9a-f]+$/i.test(trimmed)) return { kind: 'address', address: Number(trimmed) };
  const event = /^(?:#|event\s+)([\d,_]+)$/i.exec(trimmed);
  if (event) return { kind: 'event', event: Number(event[1]!.replace(/[,_]/g, '')) };
  const size = /^(>=?|<=?|=)?\s*(\d+(?:\.\d+)?\s*(?:[kmgt]i?b?|b)?)$/i.exec(trimmed);
  if (size) return sizeQuery(size[1] ?? '', size[2]!);
  return { kind: 'frame', text: trimmed };
}

function sizeQuery(comparison: string, text: string): Query {
  const bytes = parseBytes(text);
  if (comparison.startsWith('>'))
    return { kind: 'size', atLeast: comparison === '>' ? bytes + 1 : bytes, atMost: Number.POSITIVE_INFINITY };
  if (comparison.startsWith('<')) return { kind: 'size', atLeast: 0, atMost: comparison === '<' ? bytes - 1 : bytes };
  const digits = /\.(\d+)/.exec(text)?.[1]?.length ?? 0;
  const unit = parseBytes(text.replace(/[\d.]+/, '1'));
  const slack = unit === 1 ? 0 : (unit * SHOWN_DIGITS * 100) / 10 ** digits;
  return { kind: 'size', atLeast: bytes - slack, atMost: bytes + slack };
}

/** Allocations that match the query. An event matches its allocation. */
export function search(trace: Trace, history: History, query: Query): SearchResult {
  const { allocations, allocationOf, events } = trace;
  const hits: number[] = [];
  let total = 0;
  const matches = matcherOf(trace, history, query);
  if (query.kind === 'event') {
    const allocation = query.event < events.count ? allocationOf[query.event]! : -1;
    return { query: 'event', hits: allocation >= 0 ? [allocation] : [], total: allocation >= 0 ? 1 : 0 };
  }
  for (let index = 0; index < allocations.count; index++) {
    if (!matches(index)) continue;
    total++;
    if (hits.length < MOST_HITS) hits.push(index);
  }
  return { query: query.kind, hits, total };
}

/** Whether an allocation matches the query: for the hits, and to fade the rest of the map. */
export function matcherOf(trace: Trace, history: History, query: Query): (allocation: number) => boolean {
  const { allocations, allocationOf } = trace;
  switch (query.kind) {
    case 'address':
      return (index) => history.address[index]! <= query.address && query.address < history.address[index]! + history.size[index]!;
    case 'size':
      return (index) => allocations.requested[index]! >= query.atLeast && allocations.requested[index]! <= query.atMost;
    case 'event':
      return (index) => allocationOf[query.event] === index;
    case 'frame': {
      const inside = stacksWith(trace, query.text);
      return (index) => {
        const node = nodeOf(trace, index);
        return node >= 0 && inside[node] === 1;
      };
    }
  }
}

/** By stack: whether one of its frames has the text in its name or file. */
function stacksWith(trace: Trace, text: string): Uint8Array {
  const { stacks, frames, strings } = trace.symbols;
  const wanted = text.toLowerCase();
  const found = new Uint8Array(frames.count);
  for (let frame = 0; frame < frames.count; frame++) {
    const label = `${strings[frames.filename(frame)] ?? ''}:${frames.line(frame)} ${strings[frames.name(frame)] ?? ''}`;
    if (label.toLowerCase().includes(wanted)) found[frame] = 1;
  }
  const inside = new Uint8Array(stacks.count);
  for (let stack = 0; stack < stacks.count; stack++) {
    const parent = stacks.parent(stack);
    inside[stack] = found[stacks.frame(stack)] === 1 || (parent >= 0 && inside[parent] === 1) ? 1 : 0;
  }
  return inside;
}

// Texts that the program gave to its allocations: user metadata at the time of the request, and annotations since.
import { EventKind, type Trace } from './trace.ts';

/** A program may annotate a block in a loop. */
const MOST_NOTES = 4;
/** A text is cut here, since it can be as long as the file. */
const MOST_CHARACTERS = 120;

export class Notes {
  private readonly trace: Trace;
  /** Strings of annotations, by allocation. */
  private readonly annotations = new Map<number, number[]>();

  constructor(trace: Trace) {
    this.trace = trace;
    const { events, allocationOf } = trace;
    for (let event = 0; event < events.count; event++) {
      const text = events.metadata[event]!;
      if (events.kind[event] !== EventKind.Annotate || text === 0 || allocationOf[event]! < 0) continue;
      const known = this.annotations.get(allocationOf[event]!);
      if (!known) this.annotations.set(allocationOf[event]!, [text]);
      else if (known.length < MOST_NOTES && !known.includes(text)) known.push(text);
    }
  }

  /** In the order in which they were given; empty for nearly all allocations of nearly all programs. */
  of(allocation: number): readonly string[] {
    const { events, allocations, symbols } = this.trace;
    const allocEvent = allocations.allocEvent[allocation]!;
    const metadata = allocEvent < 0 ? 0 : events.metadata[allocEvent]!;
    const annotations = this.annotations.get(allocation);
    if (metadata === 0 && !annotations) return NONE;
    const texts = [...(metadata === 0 ? [] : [metadata]), ...(annotations ?? []).filter((text) => text !== metadata)];
    return texts.slice(0, MOST_NOTES).map((text) => shortened(symbols.strings[text] ?? ''));
  }
}

const NONE: readonly string[] = [];

function shortened(text: string): string {
  return text.length > MOST_CHARACTERS ? `${text.slice(0, MOST_CHARACTERS)}...` : text;
}

/** As it stands behind a call site: ` [weights, step 3]`. */
export function noteWords(notes: readonly string[]): string {
  return notes.length === 0 ? '' : ` [${notes.join(', ')}]`;
}

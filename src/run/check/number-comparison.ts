// Compares two outputs of one command by the numbers in them: in order, and by the largest relative difference.

/** The numbers of one output. */
export interface FoundNumbers {
  readonly values: readonly number[];
  /** The text between the numbers. If it differs, two outputs cannot be compared. Undefined: not compared. */
  readonly textBetween?: string;
}

const NUMBER = String.raw`[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?\b(?:nan|inf(?:inity)?)\b`;
/** `loss 2.3`, `train_loss: 2.3`, `'loss': 2.3`, `Loss=tensor(2.3`, `loss is 2.3`. */
const LOSS: RegExp = new RegExp(String.raw`loss[\w/.-]{0,64}["')\]]{0,8}\s{0,16}(?:[:=]|is\b)?\s{0,16}(?:tensor\()?\(?(${NUMBER})`, 'gi');

/** Extracts numbers from an output, chunk by chunk. */
export class NumberReader {
  readonly values: number[] = [];
  private readonly pattern: RegExp | undefined;
  private readonly decoder = new TextDecoder();
  private rest = '';

  /** With a pattern, reads matching lines. Without, reads numbers after a word that contains "loss". */
  constructor(pattern: RegExp | undefined) {
    this.pattern = pattern && new RegExp(pattern.source, `${pattern.flags.replace('g', '')}g`);
  }

  push(chunk: Uint8Array): void {
    const lines = (this.rest + this.decoder.decode(chunk, { stream: true })).split(/\r\n|\n|\r/);
    this.rest = lines.pop() ?? '';
    for (const line of lines) this.readLine(line);
    // A line without an end must not use ever more memory.
    if (this.rest.length > 1 << 20) this.rest = '';
  }

  finish(): FoundNumbers {
    this.readLine(this.rest + this.decoder.decode());
    this.rest = '';
    return { values: this.values };
  }

  private readLine(line: string): void {
    const { pattern } = this;
    if (!pattern) {
      for (const match of line.matchAll(LOSS)) this.values.push(toNumber(match[1]!));
      return;
    }
    for (const match of line.matchAll(pattern)) {
      // If the pattern has groups, they hold the numbers. If not, all numbers of the line count.
      if (match.length > 1) {
        for (const group of match.slice(1)) if (group !== undefined) this.add(numbersIn(group));
      } else {
        this.add(numbersIn(line));
        break;
      }
    }
  }

  /** One by one: a line may have more numbers than a call can take arguments. */
  private add(values: readonly number[]): void {
    for (const value of values) this.values.push(value);
  }
}

/** Splits a file into numbers and the text between them; undefined if it is not text. */
export function readText(bytes: Uint8Array): FoundNumbers | undefined {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
  if (text.includes('\0')) return undefined;
  const number = new RegExp(NUMBER, 'gi');
  return { values: numbersIn(text), textBetween: text.replace(number, '#') };
}

/** The largest relative difference of two numbers in the same place; infinite if they cannot be compared. */
export function distance(one: FoundNumbers, other: FoundNumbers): number {
  if (one.values.length !== other.values.length || one.textBetween !== other.textBetween) return Number.POSITIVE_INFINITY;
  let most = 0;
  for (const [index, a] of one.values.entries()) {
    const b = other.values[index]!;
    if (Object.is(a, b) || a === b) continue;
    const apart = Math.abs(a - b) / Math.max(Math.abs(a), Math.abs(b));
    most = Math.max(most, Number.isNaN(apart) ? Number.POSITIVE_INFINITY : apart);
  }
  return most;
}

function numbersIn(text: string): number[] {
  return [...text.matchAll(new RegExp(NUMBER, 'gi'))].map(([number]) => toNumber(number));
}

function toNumber(text: string): number {
  const lower = text.toLowerCase();
  if (lower.includes('nan')) return Number.NaN;
  if (lower.includes('inf')) return lower.startsWith('-') ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  return Number(text);
}

// The page's worker: holds one recording that never leaves the browser, and answers questions about it; or compares two.
import { Answering, type Asked, type Cancelled, type Told, wordsFor } from '../src/view/answering.ts';
import { type DifferenceAsk, differenceView, traceOf } from '../src/view/job-protocol.ts';
import { readInBrowser } from './data/unpack.ts';

/** What to open: a dropped file, or a recording that is inside the page. */
export interface Opened {
  readonly name: string;
  readonly content: Blob | string;
}

interface ComparedFile extends Opened {
  readonly gpu: number;
}

/** Two recordings whose difference is asked for, once. */
export interface Comparison {
  readonly a: ComparedFile;
  readonly b: ComparedFile;
  readonly by: DifferenceAsk['by'];
}

const scope = self as unknown as {
  postMessage(told: Told): void;
  onmessage: ((event: MessageEvent<Opened | Comparison | Asked | Cancelled>) => void) | null;
};
let answering: Answering | undefined;

scope.onmessage = ({ data }) => {
  if ('a' in data) void compare(data);
  else if ('content' in data) {
    answering = new Answering(
      data.name,
      async (onProgress) => {
        onProgress(0, `reading ${data.name}`);
        return readInBrowser(blobOf(data.content), (fraction) => onProgress(fraction, `reading ${data.name}`));
      },
      (told) => scope.postMessage(told),
    );
  } else answering?.receive(data);
};

async function compare({ a, b, by }: Comparison): Promise<void> {
  let reading = a.name;
  try {
    const first = await readInBrowser(blobOf(a.content), () => {});
    reading = b.name;
    const second = a.content === b.content ? first : await readInBrowser(blobOf(b.content), () => {});
    const side = ({ name, gpu }: ComparedFile, recording: typeof first) => ({ trace: traceOf(recording, gpu, name), name });
    scope.postMessage({ id: 0, answer: differenceView(side(a, first), side(b, second), by) });
  } catch (error) {
    scope.postMessage({ id: 0, problem: `${reading}: ${wordsFor(error)}` });
  }
}

function blobOf(content: Blob | string): Blob {
  if (typeof content !== 'string') return content;
  const binary = atob(content);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return new Blob([bytes]);
}

// The page's worker: holds one recording that never leaves the browser, and answers questions about it.
import { Answering, type Asked, type Cancelled, type Told } from '../src/view/answering.ts';
import { readInBrowser } from './data/unpack.ts';

/** What to open: a dropped file, or a recording that is inside the page. */
export interface Opened {
  readonly name: string;
  readonly content: Blob | string;
}

const scope = self as unknown as {
  postMessage(told: Told): void;
  onmessage: ((event: MessageEvent<Opened | Asked | Cancelled>) => void) | null;
};
let answering: Answering | undefined;

scope.onmessage = ({ data }) => {
  if ('content' in data) {
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

function blobOf(content: Blob | string): Blob {
  if (typeof content !== 'string') return content;
  const binary = atob(content);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return new Blob([bytes]);
}

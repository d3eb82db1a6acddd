// The page's worker: holds one recording that never leaves the browser, and answers questions about it.
import { readRecording } from '../src/trace/detect.ts';
import { Answering, type Asked, type Cancelled, type Told } from '../src/view/answering.ts';
import { unpackInBrowser } from './data/unpack.ts';

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
        const bytes = await unpackInBrowser(await bytesOf(data.content));
        return readRecording(bytes, { onProgress: (fraction) => onProgress(fraction, `reading ${data.name}`) });
      },
      (told) => scope.postMessage(told),
    );
  } else answering?.receive(data);
};

async function bytesOf(content: Blob | string): Promise<Uint8Array<ArrayBuffer>> {
  if (typeof content !== 'string') return new Uint8Array(await content.arrayBuffer());
  const binary = atob(content);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

// Colours for the terminal, or none: never into a pipe, and never against NO_COLOR.
import { styleText } from 'node:util';
import { type Paint, PLAIN } from '../report/text.ts';

export function paintFor(stream: NodeJS.WriteStream): Paint {
  if (!stream.isTTY || process.env['NO_COLOR']) return PLAIN;
  return {
    strong: (text) => styleText('bold', text),
    good: (text) => styleText('green', text),
    bad: (text) => styleText('red', text),
    dim: (text) => styleText('dim', text),
  };
}

// Colours for the terminal; none in a pipe or with NO_COLOR.
import { styleText } from 'node:util';
import { type Paint, PLAIN } from '../report/terminal/paint.ts';

export function paintFor(stream: NodeJS.WriteStream): Paint {
  if (!stream.isTTY || process.env['NO_COLOR']) return PLAIN;
  return {
    strong: (text) => styleText('bold', text),
    good: (text) => styleText('green', text),
    bad: (text) => styleText('red', text),
    dim: (text) => styleText('dim', text),
  };
}

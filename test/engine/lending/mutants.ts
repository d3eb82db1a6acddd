// The engine with deliberate mistakes: its sources, compiled with one line changed.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { compileEngine, type EngineModule } from '../../../src/allocator/engine/load.ts';

export interface Mutant {
  readonly name: string;
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

export const MUTANTS: readonly Mutant[] = [
  {
    name: 'no wait is made',
    file: 'engine/streams/progress.ts',
    from: 'if (streamWait(later.id, slotOf(earlier, number)) < 0) return false;',
    to: '',
  },
  {
    name: 'the wait is for the event before',
    file: 'engine/streams/progress.ts',
    from: 'if (streamWait(later.id, slotOf(earlier, number)) < 0) return false;',
    to: 'if (streamWait(later.id, slotOf(earlier, number - 1)) < 0) return false;',
  },
  {
    name: 'an event is taken to cover the release after it',
    file: 'engine/streams/progress.ts',
    from: 'load<u64>(coverOf(stream, number)) < point) number++;',
    to: 'load<u64>(coverOf(stream, number)) + 1 < point) number++;',
  },
  {
    name: 'every event is over',
    file: 'engine/streams/progress.ts',
    from: 'if (eventQuery(slotOf(stream, stream.oldest)) !== 1) return;',
    to: 'eventQuery(slotOf(stream, stream.oldest));',
  },
  {
    name: 'a wait is remembered as longer than it was',
    file: 'engine/streams/progress.ts',
    from: 'wait.point = load<u64>(coverOf(earlier, number));',
    to: 'wait.point = u64.MAX_VALUE;',
  },
  {
    name: 'joined ranges keep the older release',
    file: 'engine/space/ranges.ts',
    from: 'prev.releasePoint = larger(point, prev.releasePoint);',
    to: '',
  },
  {
    name: 'the rest of a split range has no release',
    file: 'engine/records/range-pool.ts',
    from: '  range.releasePoint = whole.releasePoint;',
    to: '  range.releasePoint = 0;',
  },
  {
    name: 'recorded streams are forgotten',
    file: 'engine/blocks.ts',
    from: 'if (hasUses(block)) park(block, blockSize(block));\n  else finish(block);',
    to: 'finish(block);',
  },
  {
    name: 'the point of a recorded use is that of the release before',
    file: 'engine/streams/uses.ts',
    from: 'use.point = stamp(use.lane, bytes);',
    to: 'use.point = stamp(use.lane, bytes) - 2;',
  },
  {
    name: 'borrowed memory that is free keeps the number of its lender',
    file: 'engine/streams/lending.ts',
    from: 'const point = range.releasePoint <= lender.lane.done ? 0 : stamp(borrower.lane, 0);',
    to: 'const point: u64 = 0;',
  },
];

/** The part of the compiler that we use. Its own types would bring those of AssemblyScript into ours. */
interface Compiler {
  main(
    options: readonly string[],
    host: {
      readFile(name: string): string | null;
      writeFile(name: string, contents: Uint8Array): void;
      listFiles(): string[];
    },
  ): Promise<{ readonly error: Error | null; readonly stderr: { toString(): string } }>;
}

const COMPILER: string = 'assemblyscript/asc';
const root = process.cwd();

export async function compileMutant(mutant: Mutant): Promise<EngineModule> {
  let wasm: Uint8Array | undefined;
  let changed = false;
  const read = (name: string): string | null => {
    let text: string;
    try {
      text = readFileSync(join(root, name), 'utf8');
    } catch {
      return null;
    }
    if (name !== mutant.file) return text;
    changed = text.includes(mutant.from);
    return text.replace(mutant.from, mutant.to);
  };
  const asc = ((await import(COMPILER)) as { readonly default: Compiler }).default;
  const { error, stderr } = await asc.main(
    ['engine/index.ts', '-o', 'mutant.wasm', '--runtime', 'stub', '--noAssert', '--use', 'abort=', '--maximumMemory', '32768'],
    {
      readFile: read,
      writeFile: (_name, contents) => {
        wasm = contents;
      },
      listFiles: () => [],
    },
  );
  if (error || !wasm) throw new Error(`mutant '${mutant.name}' does not compile: ${stderr.toString()}`);
  if (!changed) throw new Error(`mutant '${mutant.name}' changes nothing: ${mutant.file} has no such line any more`);
  return compileEngine(new Uint8Array(wasm));
}

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
    from: 'if (load<u64>(coverOf(stream, number + half)) < point) {',
    to: 'if (load<u64>(coverOf(stream, number + half)) + 1 < point) {',
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
    from: 'if (hasUses(block)) park(block, blockSize(block));\n  else finish(block, 0);',
    to: 'finish(block, 0);',
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
  {
    name: 'handles keep an older release',
    file: 'engine/records/releases.ts',
    from: 'handle.released = larger(handle.released, entry.point);',
    to: '',
  },
  {
    name: 'handles have no release from before the second stream',
    file: 'engine/records/releases.ts',
    from: 'return larger(handle.released, lane.floor);',
    to: 'return handle.released;',
  },
  {
    name: 'handles are taken before their release is over',
    file: 'engine/streams/lending.ts',
    from: 'if (point > ordered) {',
    to: 'if (false) {',
  },
  {
    name: 'handles do not learn of free memory that is lent',
    file: 'engine/space/ranges.ts',
    from: '  range.state = State.Free;\n  if (streamCount > 1 && !arena.small) noteRelease',
    to: '  const lent = range.state === State.Free;\n  range.state = State.Free;\n  if (streamCount > 1 && !arena.small && !lent) noteRelease',
  },
  {
    name: 'a handle does not learn of a block that begins inside it',
    file: 'engine/records/releases.ts',
    from: 'handle.released = larger(handle.released, entry.point);',
    to: 'if (handle.address >= entry.address) handle.released = larger(handle.released, entry.point);',
  },
  {
    name: 'handles do not learn of releases before one is lent',
    file: 'engine/streams/lending.ts',
    from: '  settleReleases();\n',
    to: '',
  },
  {
    name: 'handles do not learn of a release that is nearly over',
    file: 'engine/records/releases.ts',
    from: 'if (entry.point <= entry.lane.done) continue;',
    to: 'if (entry.point <= entry.lane.done + 1) continue;',
  },
  {
    name: 'a range that joins the next keeps the older release',
    file: 'engine/space/ranges.ts',
    from: '    point = larger(point, next.releasePoint);\n',
    to: '',
  },
  {
    name: 'lent memory is over when the borrower has come as far',
    file: 'engine/streams/lending.ts',
    from: 'range.releasePoint <= lender.lane.done ? 0',
    to: 'range.releasePoint <= borrower.lane.done ? 0',
  },
  {
    name: 'lent memory has no release on the stream of the borrower',
    file: 'engine/streams/lending.ts',
    from: '? 0 : stamp(borrower.lane, 0);',
    to: '? 0 : range.releasePoint;',
  },
  {
    name: 'handles that are taken have the release of the last of them',
    file: 'engine/streams/lending.ts',
    from: 'latest = larger(latest, point);',
    to: 'latest = point;',
  },
  {
    name: 'handles are taken from the first that is over, whatever lies between',
    file: 'engine/streams/lending.ts',
    from: 'if (size === 0) start = handle.address;',
    to: 'if (start === 0) start = handle.address;',
  },
  {
    name: 'handles that are not over count as taken',
    file: 'engine/streams/lending.ts',
    from: '      size = 0;\n      latest = 0;\n',
    to: '',
  },
];

/** Mistakes that show when memory is unmapped or freed. */
export const UNMAPPING_MUTANTS: readonly Mutant[] = [
  {
    name: 'a stitch is dropped whatever the GPU does',
    file: 'engine/space/stitches.ts',
    from: 'if (!isStitchOver(stitch) || !cutStitch(stitch, 0)) return false;',
    to: 'if (!cutStitch(stitch, 0)) return false;',
  },
  {
    name: 'a release in a stitch is not noted',
    file: 'engine/policy/completion.ts',
    from: '  noteRelease(block.stitch, arena.lane, point);\n',
    to: '',
  },
  {
    name: 'a release in a stitch counts for the stream that made the stitch',
    file: 'engine/policy/completion.ts',
    from: 'noteRelease(block.stitch, arena.lane, point);',
    to: 'noteRelease(block.stitch, block.stitch.arena.lane, point);',
  },
  {
    name: 'only the last stream that used a stitch counts',
    file: 'engine/space/last-use.ts',
    from: 'if (stitch.lane !== NO_STREAM && !isOver(stitch.lane, stitch.releasePoint)) keepOther(stitch);',
    to: '',
  },
  {
    name: 'other streams that used a stitch are not asked',
    file: 'engine/space/last-use.ts',
    from: 'for (let use = stitch.otherUses; use !== NO_USE; use = use.next) if (!isOver(use.lane, use.point)) return false;',
    to: '',
  },
  {
    name: 'a stitch keeps the first release of a stream that comes back',
    file: 'engine/space/last-use.ts',
    from: 'use.point = larger(use.point, stitch.releasePoint);',
    to: 'if (use.point === 0) use.point = stitch.releasePoint;',
  },
  {
    name: 'memory is freed whatever the GPU does',
    file: 'engine/space/release.ts',
    from: '&& isRangeOver(range)) {',
    to: ') {',
  },
  {
    name: 'memory of several owners is freed whatever the GPU does',
    file: 'engine/space/release.ts',
    from: ' || !isRangeOver(part)) return false;',
    to: ') return false;',
  },
  {
    name: 'memory is over when its region is, whoever owns it',
    file: 'engine/space/last-use.ts',
    from: 'isOver(ownerOf(range).lane, range.releasePoint);',
    to: 'isOver(range.region.arena.lane, range.releasePoint);',
  },
  {
    name: 'a wait for the device covers what is freed during the wait',
    file: 'engine/index.ts',
    from: 'settleStreams(release);',
    to: 'settleStreams(latestRelease_());',
  },
  {
    name: 'an event that was not recorded counts',
    file: 'engine/streams/progress.ts',
    from: 'if (eventRecord(stream.id, slotOf(stream, stream.newest)) < 0) return false;',
    to: 'eventRecord(stream.id, slotOf(stream, stream.newest));',
  },
  {
    name: 'a stitch is dropped during a capture',
    file: 'engine/streams/eviction.ts',
    from: '(isCapturing() || !isFinished(stitch) || !dismiss(stitch))',
    to: '(!isFinished(stitch) || !dismiss(stitch))',
  },
  {
    name: 'memory is given back during a capture',
    file: 'engine/index.ts',
    from: '  if (isCapturing()) return;\n',
    to: '',
  },
  {
    name: 'a request that finds no memory frees some during a capture',
    file: 'engine/blocks.ts',
    from: 'const frees = !isCapturing();',
    to: 'const frees = true;',
  },
  {
    name: 'a parked block that its stream waits for counts as released before',
    file: 'engine/streams/uses.ts',
    from: 'parkedPoint = point <= settled ? point : 0;',
    to: 'parkedPoint = point;',
  },
  {
    name: 'recorded streams are forgotten',
    file: 'engine/blocks.ts',
    from: 'if (hasUses(block)) park(block, blockSize(block));\n  else finish(block, 0);',
    to: 'finish(block, 0);',
  },
];

/** Mistakes that need longer programs than a search can reach. */
export const RANDOM_MUTANTS: readonly Mutant[] = [
  {
    name: 'a slab returned has no release',
    file: 'engine/policy/small.ts',
    from: 'setFree(carved, point);',
    to: 'setFree(carved, 0);',
  },
  {
    name: 'memory given back by a plan has the release from before the plan',
    file: 'engine/plans/memory.ts',
    from: 'setFree(range, larger(range.releasePoint, givenBackPoint));',
    to: 'setFree(range, range.releasePoint);',
  },
  {
    name: 'memory is lent across pools',
    file: 'engine/streams/lending.ts',
    from: 'lender.pool !== borrower.pool || ',
    to: '',
  },
  {
    name: 'an event that stays in a full ring has the slot of a dropped one',
    file: 'engine/streams/progress.ts',
    from: '  store<u8>(slotPlace(stream, other), slot);\n',
    to: '',
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

// Reads the text traces of the SmartPool study: one `Malloc <ptr> <bytes> <ms>` or `Free <ptr> <ms>` per line.
import { InputError } from '../../base/errors.ts';
import { type MemoryOps, OpsBuilder } from '../steps/memory-ops.ts';

export function looksLikeMallocText(text: string): boolean {
  return /^(Malloc|Free) 0x[0-9a-f]+ \d+/.test(text);
}

export function readMallocText(text: string): MemoryOps {
  const lines = text.split('\n');
  const ops = new OpsBuilder(lines.length);
  const open = new Map<string, { op: number; size: number }>();
  let live = 0;
  lines.forEach((line, index) => {
    if (line.trim() === '') return;
    const [kind, pointer, bytes] = line.trim().split(/\s+/);
    if (kind === 'Malloc' && pointer !== undefined && /^\d+$/.test(bytes ?? '')) {
      const size = Number(bytes);
      live += size;
      if (live > Number.MAX_SAFE_INTEGER) throw new InputError(`line ${index + 1}: the sizes add up to more than any memory holds`);
      open.set(pointer, { op: ops.alloc(size, 0), size });
    } else if (kind === 'Free' && pointer !== undefined) {
      const block = open.get(pointer);
      if (!block) throw new InputError(`line ${index + 1} frees ${pointer}, which is not allocated`);
      open.delete(pointer);
      live -= block.size;
      ops.free(block.op, block.size, 0);
    } else throw new InputError(`line ${index + 1} is neither 'Malloc ptr bytes ms' nor 'Free ptr ms'`);
  });
  return ops.finish(0);
}

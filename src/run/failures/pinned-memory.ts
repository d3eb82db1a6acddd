// Pinned host memory of each process, as the process itself tells: DIR/<pid>.pinned.json, written now and then and at a failure.
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { EXCHANGE_FILES } from '../../abi/exchange.ts';
import { readShape } from '../../base/shape.ts';
import type { HostMemory } from '../../trace/trace.ts';
import type { ProcessRecording } from '../rings/process-recording.ts';

export class PinnedMemory {
  private readonly folder: string;
  private readonly told = new Map<number, HostMemory>();
  private readonly readAt = new Map<string, number>();

  constructor(folder: string) {
    this.folder = folder;
  }

  /** A file is in the folder. */
  see(name: string): void {
    if (!name.endsWith(EXCHANGE_FILES.PinnedReport)) return;
    const path = join(this.folder, name);
    try {
      const { mtimeMs } = statSync(path);
      if (this.readAt.get(name) === mtimeMs) return;
      this.readAt.set(name, mtimeMs);
      const report = readShape('PinnedReport', JSON.parse(readFileSync(path, 'utf8')));
      this.told.set(report.pid, {
        events: report.allocations,
        peakHeld: Math.max(report.peakHeld, report.held),
        ...(typeof report.peakUsed === 'number' && { usedAtPeak: Math.min(report.peakUsed, Math.max(report.peakHeld, report.held)) }),
        heldAtEnd: report.held,
        ...(typeof report.used === 'number' && { usedAtEnd: report.used }),
        ...(typeof report.rounding === 'number' && { roundingAtEnd: report.rounding }),
      });
    } catch {
      // Files are renamed into place: this one is gone, or not ours.
    }
  }

  of({ owner }: ProcessRecording): HostMemory | undefined {
    return this.told.get(owner.pid);
  }
}

// Suggestions in words: the line to type, and what it does. The terminal, the page and JSON show the same ones.
import { formatBytes } from '../../base/bytes.ts';
import { type Advice, type Effect, WORTHWHILE } from '../advice.ts';
import { formatChange } from './numbers.ts';
import { START_RECORDING, shellWord } from './shell.ts';

/** A line to copy into a shell or a script. */
export function adviceLine(advice: Advice): string {
  switch (advice.kind) {
    case 'setting':
      return `export PYTORCH_CUDA_ALLOC_CONF=${shellWord(advice.conf)}`;
    case 'engine':
      return 'weir run -- COMMAND  # the command that starts the job';
    case 'record-earlier':
      return `${START_RECORDING}  # before the model is built`;
    case 'less-demand':
      return 'model.gradient_checkpointing_enable()  # or a smaller batch';
  }
}

/** What the line does, or why it is worth typing. */
export function adviceEffect(advice: Advice): string {
  switch (advice.kind) {
    case 'setting':
      return `${advice.isFallback ? 'if expandable segments cannot be used (CUDA IPC, WSL): ' : ''}${effectWords(advice.effect)}`;
    case 'engine':
      return `needs the least memory, by stitching free pieces together: ${effectWords(advice.effect)}; more: weir replay ${shellWord(advice.source)} --allocator weir,expandable`;
    case 'record-earlier':
      return 'a recording from the start misses nothing; this one lacks events';
    case 'less-demand':
      return `live memory alone takes ${formatBytes(advice.peakDemand)}, more than ${formatBytes(advice.capacity)}: no allocator can make that fit`;
  }
}

export const NO_ADVICE: string = `No setting of PyTorch's allocator would save ${100 * WORTHWHILE} % or more.`;

function effectWords({ peak, fit, smallestGpu }: Effect): string {
  const change = `${formatBytes(peak.before)} -> ${formatBytes(peak.after)} (${formatChange(peak.after, peak.before)})`;
  if (fit) return `${fitReason(fit)}; peak reserved without a limit ${change}`;
  if (smallestGpu) return `peak reserved ${change}; smallest GPU ${formatBytes(smallestGpu.before)} -> ${formatBytes(smallestGpu.after)}`;
  return `peak reserved ${change}`;
}

function fitReason({ isSure, capacity, capacityAtLeast }: NonNullable<Effect['fit']>): string {
  if (isSure) return `fits in ${formatBytes(capacityAtLeast ?? capacity)} (the recorded settings do not)`;
  return `may fit (the recorded settings do not), if the limit was nearly ${formatBytes(capacity)}`;
}

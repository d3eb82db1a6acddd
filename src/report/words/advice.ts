// Suggestions in words: the line to type, and what it does. The terminal, the page and JSON show the same ones.
import { formatBytes } from '../../base/bytes.ts';
import { type Advice, type Effect, type SettingAdvice, WORTHWHILE } from '../advice.ts';
import type { Analysis } from '../analysis.ts';
import type { OversizedRequest } from '../oversized.ts';
import type { WhatIfRow } from '../what-if.ts';
import { formatChange, formatCount, formatSizes } from './numbers.ts';
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
    case 'oversized':
      return `print(a.shape, b.shape)  # the operands ${advice.request.site ? `at ${advice.request.site}` : 'of the request'}`;
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
    case 'oversized':
      return `${oversizedWords(advice.request)}; look for an accidental broadcast, such as [N, 1] with [N]`;
  }
}

/** If there is no advice: what was tried. A setting that was not tried may still help. */
export function noAdvice(rows: readonly WhatIfRow[]): string {
  const tried = rows.filter((row) => !row.isRecorded && row.conf !== undefined).map((row) => row.conf || 'the defaults');
  if (tried.length === 0) return "No other setting of PyTorch's allocator was tried.";
  return `None of the settings tried saves ${100 * WORTHWHILE} % or more (${tried.join(', ')}).`;
}

/** The answer in one sentence, to stand above everything else; undefined if the verdict alone is the answer. */
export function leadSentence({ advice, whatIf, peak }: Analysis): string | undefined {
  const [first] = advice;
  const setting = advice.find((each): each is SettingAdvice => each.kind === 'setting');
  switch (first?.kind) {
    case 'oversized':
      return `${capitalized(oversizedWords(first.request))}. Look for an accidental broadcast.`;
    case 'less-demand': {
      const help = setting ? ` Make the job smaller; then set ${setting.conf}.` : ' Make the job smaller.';
      return `No allocator can make this run fit in ${formatBytes(first.capacity)}: live memory alone takes ${formatBytes(first.peakDemand)}.${help}`;
    }
    case 'setting':
      return `Set ${first.conf || "PyTorch's defaults"}: ${leadEffect(first.effect)}.`;
    case 'engine':
      return `Run the job with weir run: ${leadEffect(first.effect)}.`;
    default:
      return whatIf.length > 0 && peak.reserved > 0 ? noAdvice(whatIf) : undefined;
  }
}

function leadEffect({ peak, fit, smallestGpu }: Effect): string {
  const change = `peak ${formatSizes(peak.before, peak.after)}`;
  if (fit) {
    const where = formatBytes(fit.isSure ? (fit.capacityAtLeast ?? fit.capacity) : fit.capacity);
    return `${change} without a limit, ${fit.isSure ? 'fits' : 'may fit'} in ${where}`;
  }
  return smallestGpu ? `${change}, smallest GPU ${formatSizes(smallestGpu.before, smallestGpu.after)}` : change;
}

function oversizedWords({ bytes, site, peakLive, capacity }: OversizedRequest): string {
  const than = capacity === undefined ? '' : `, more than the job can get (${formatBytes(capacity)})`;
  const times =
    peakLive > 0 && bytes >= 2 * peakLive ? `, ${formatCount(Math.round(bytes / peakLive))} times the peak of all live memory` : '';
  return `one request asks for ${formatBytes(bytes)}${than}${times}${site ? `, at ${site}` : ''}`;
}

function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

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

// An out-of-memory error in words: the ten lines that a supervisor prints, and the sentences that the analysis shares with it.
import { formatBytes } from '../../base/bytes.ts';
import { type OtherParts, otherParts } from '../../trace/other-memory.ts';
import type { HostMemory, OtherMemory } from '../../trace/trace.ts';
import { CATEGORY_NAMES, type Category } from '../categories.ts';
import type { FailureFacts, Fit } from '../failure.ts';
import { CATEGORY_TITLES } from './categories.ts';
import { formatTimes } from './numbers.ts';

/** Call sites in the ten lines. */
const SHOWN_SITES = 4;

/**
 * Ten lines: the request and its call site, the state, the holders, what would have made it fit, what to type next.
 * `problem`: why other settings were not tried.
 */
export function failureLines(facts: FailureFacts, who: string, file: string | undefined, problem?: string): string[] {
  const { sites } = facts;
  const phase = facts.phase === undefined ? '' : `, in ${facts.phase === 'optimizer' ? 'the optimizer' : facts.phase}`;
  const holders = sites.slice(0, SHOWN_SITES).map((site, index) => {
    const lead = index === 0 ? 'by call site: ' : ' '.repeat(14);
    return `  ${lead}${formatBytes(site.bytes)} in ${formatTimes(site.allocations, 'allocation', 'allocations')}: ${site.label}`;
  });
  const held = holders.length > 0 ? holders : ['  by call site: unknown (no stacks were recorded)'];
  return [
    `out of memory: ${who}, GPU ${facts.gpu}${phase}: a request for ${formatBytes(facts.asked)} failed`,
    `  requested at: ${facts.site ?? 'unknown (no stack was recorded; --stacks records them)'}`,
    `  ${stateSentence(facts)}`,
    `  ${facts.other ? otherSentence(facts.other) : "memory that is not PyTorch's: unknown"}`,
    ...(facts.live === 0 ? [] : [`  by category: ${categoryWords(facts.categories)}`, ...held]),
    `  ${fitSentence(facts)}`,
    ...(problem === undefined ? [] : [`  other settings were not tried: ${problem}`]),
    ...(file === undefined ? [] : [`  next: weir analyze ${file}`]),
  ];
}

function stateSentence({ live, reserved, deviceFree, limit, deviceBytes }: FailureFacts): string {
  const parts = [`in use: ${formatBytes(live)}`];
  if (reserved !== undefined) parts.push(`reserved: ${formatBytes(reserved)}`);
  parts.push(`free on the GPU: ${formatBytes(deviceFree)}${deviceBytes === undefined ? '' : ` of ${formatBytes(deviceBytes)}`}`);
  if (limit !== undefined) parts.push(`limit: ${formatBytes(limit)}`);
  return parts.join(', ');
}

/** Largest first; what is not known comes last. */
export function categoryWords(categories: Readonly<Record<Category, number>>): string {
  const known = CATEGORY_NAMES.filter((name) => name !== 'unknown' && categories[name] > 0).sort((a, b) => categories[b] - categories[a]);
  if (known.length === 0) return 'unknown';
  const shown = categories.unknown > 0 ? [...known, 'unknown' as const] : known;
  return shown.map((name) => `${CATEGORY_TITLES[name]} ${formatBytes(categories[name])}`).join(', ');
}

export function otherSentence({ total, own, others }: OtherParts): string {
  const parts =
    own === undefined
      ? 'CUDA contexts, NCCL, libraries and other processes'
      : `CUDA context, NCCL and libraries of this process ${formatBytes(own)}, other processes ${formatBytes(others)}`;
  return `memory that is not PyTorch's: ${formatBytes(total)} (${parts})`;
}

/** For the analysis; undefined: not recorded. */
export function otherMemorySentence(other: OtherMemory | undefined): string | undefined {
  if (!other) return undefined;
  const sentence = otherSentence(otherParts(other));
  return `${sentence.charAt(0).toUpperCase()}${sentence.slice(1)}.`;
}

/** What would have made the request fit. */
function fitSentence({ fit, categories, deviceFree }: FailureFacts): string {
  if (fit.isOversized)
    return 'nothing makes it fit: the request alone is larger than the GPU. Look for an accidental broadcast, such as [N, 1] with [N]';
  if (fit.isLimited)
    return `to make it fit: a higher limit. The GPU had ${formatBytes(deviceFree)} free, so a limit of the program stood in the way, such as torch.cuda.set_per_process_memory_fraction()`;
  if (fit.short > 0) return `to make it fit: ${formatBytes(fit.short)} less. ${demandWords(fit, categories)}`;
  const scattered = `to make it fit: no less memory, but in one piece (${formatBytes(fit.scattered)} were free)`;
  return fit.setting === undefined ? `${scattered}. weir run --plan lays out each step` : `${scattered}. ${fit.setting}`;
}

function demandWords(fit: Fit, categories: Readonly<Record<Category, number>>): string {
  const options: string[] = [];
  if (fit.limit !== undefined) options.push(`a limit of ${formatBytes(fit.limit)} or more`);
  if (fit.others !== undefined) options.push(`no other processes on this GPU (they hold ${formatBytes(fit.others)})`);
  if (categories.activation > fit.short)
    options.push(`activation checkpointing or a smaller batch (activations hold ${formatBytes(categories.activation)})`);
  else options.push('a smaller batch or activation checkpointing');
  const idle = categories.optimizerState + categories.parameter + categories.gradient;
  options.push(`weir run --swap auto${idle > fit.short ? ` (parameters, gradients and optimizer state hold ${formatBytes(idle)})` : ''}`);
  return `One of: ${options.join('; ')}`;
}

/** Pinned host memory in one line of a summary. */
export function pinnedWords({ peakHeld, heldAtEnd, usedAtEnd, roundingAtEnd }: HostMemory): string {
  const used = usedAtEnd === undefined ? '' : `, ${formatBytes(usedAtEnd)} in use`;
  const rounding = roundingAtEnd === undefined ? '' : `, ${formatBytes(roundingAtEnd)} of it rounding to powers of two`;
  return `pinned host memory: ${formatBytes(heldAtEnd)} held${used}${rounding}; peak ${formatBytes(peakHeld)}`;
}

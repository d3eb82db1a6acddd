// Sentences about the difference between two runs: one fact, one sentence. A is the first run, B the second.

import { formatBytes } from '../../base/bytes.ts';
import { type Change, type Diff, type DiffSide, growthOf, type SiteChange } from '../diff.ts';
import { hasSteps, type NoSteps, type RunSteps } from '../run-steps.ts';
import { CATEGORY_TITLES } from './categories.ts';
import { callersWords, stepsWords } from './leaks.ts';
import { formatChange, formatSizes, formatTimes } from './numbers.ts';

/** A size with its sign. */
export function formatGrowth(bytes: number): string {
  return `${bytes > 0 ? '+' : ''}${formatBytes(bytes)}`;
}

export function diffHeadline(diff: Diff): string {
  const { before, after } = diff.alignment;
  const growth = growthOf(diff);
  const where = momentWords(diff);
  if (growth === 0) return `Live memory is the same to the byte: ${formatBytes(before.bytes)} ${where}.`;
  const percent = formatChange(after.bytes, before.bytes);
  return `Live memory ${growth > 0 ? 'grew' : 'shrank'} by ${formatBytes(Math.abs(growth))}${percent === '' ? '' : ` (${percent})`}: ${formatSizes(before.bytes, after.bytes)} ${where}.`;
}

/** Steps are counted from 1 here, because only one of the runs numbers them, or none. */
function ordinal(number: number): string {
  const teen = number % 100 >= 11 && number % 100 <= 13;
  return `${number}${teen ? 'th' : (['th', 'st', 'nd', 'rd'][number % 10] ?? 'th')}`;
}

function momentWords({ alignment }: Diff): string {
  switch (alignment.by) {
    case 'step':
      return alignment.step!.isCounted
        ? `at the peak of step ${alignment.step!.number}`
        : `at the peak of the ${ordinal(alignment.step!.number)} step found`;
    case 'peak':
      return 'at the peak of each run';
    case 'end':
      return 'at the end of each run';
  }
}

/** The share of the growth that the named sites must explain together. */
const EXPLAINED = 0.8;
const MOST_NAMED = 3;

/** Which lines the growth comes from; undefined: nothing grew, or no line is known. */
export function growthSentence(diff: Diff): string | undefined {
  const growth = growthOf(diff);
  const grown = diff.sites.filter((site) => (growth >= 0 ? site.after > site.before : site.after < site.before));
  if (grown.length === 0) return undefined;
  const named: SiteChange[] = [];
  let explained = 0;
  for (const site of grown) {
    if (named.length === MOST_NAMED || (named.length > 0 && explained >= EXPLAINED * Math.abs(growth))) break;
    named.push(site);
    explained += Math.abs(site.after - site.before);
  }
  const words = named.map(
    (site) => `${site.label} (${formatGrowth(site.after - site.before)}${novelty(site) === '' ? '' : `, ${novelty(site)}`})`,
  );
  return `${growth >= 0 ? 'What grew most' : 'What shrank most'}: ${words.join(', ')}.`;
}

/** A category that has less than this share of all that moved, up or down, is not named. */
const MOSTLY = 0.5;

/** Which category the growth is of; undefined: it is not known, or spread over several. */
export function categorySentence(diff: Diff): string | undefined {
  const growth = growthOf(diff);
  const change = (category: Change) => (category.after - category.before) * Math.sign(growth);
  const categories = diff.categories ?? [];
  const [most] = [...categories].sort((a, b) => change(b) - change(a));
  const moved = categories.reduce((sum, category) => sum + Math.abs(category.after - category.before), 0);
  if (!most || growth === 0 || change(most) < MOSTLY * moved) return undefined;
  return `Most of the change is ${CATEGORY_TITLES[most.category]}: ${formatGrowth(most.after - most.before)}.`;
}

/** Whether one of the runs does not have the line at all; empty otherwise. */
export function novelty({ before, after, isOnly }: Pick<SiteChange, 'before' | 'after' | 'isOnly'>): string {
  if (!isOnly) return '';
  return before === 0 ? 'new' : after === 0 ? 'gone' : '';
}

/** The peaks may be at different lines of the program. */
export function placesSentence({ before, after, alignment, differsInPlace }: Diff): string | undefined {
  if (!differsInPlace || alignment.by === 'end') return undefined;
  return `The peak is elsewhere in the program: in A at ${before.place}, in B at ${after.place}. Some call sites are live at one of both peaks only.`;
}

/** How the moments were chosen. */
export function alignmentSentence({ alignment, before, after }: Diff): string {
  const { by, step, reason } = alignment;
  if (by === 'end') return 'Compared at the ends of both runs, as asked for.';
  if (by === 'peak')
    return reason === undefined
      ? 'Compared at the peaks of both runs, as asked for.'
      : `Compared at the peaks of both runs, because ${reason}.`;
  const how = [before.steps, after.steps].map(stepWords);
  const found = how[0] === how[1] ? `Steps come from ${how[0]}` : `Steps come from ${how[0]} in A and ${how[1]} in B`;
  const order = step!.isCounted ? '' : ', and are paired in their order';
  return `Compared at the step in which B needs most, of ${formatTimes(step!.common, 'step', 'steps')} that both have. ${found}${order}.`;
}

function stepWords(steps: RunSteps | NoSteps): string {
  return hasSteps(steps) ? stepsWords(steps) : 'nothing';
}

/** A peak elsewhere counts if it is higher by this share. */
const HIGHER = 0.01;

/** The peaks of the whole runs, with what the driver gave. */
export function peaksSentence({ alignment, before, after }: Diff, advice = '--by peak compares the peaks'): string {
  const live = formatSizes(before.summary.peakLive, after.summary.peakLive);
  const change = formatChange(after.summary.peakLive, before.summary.peakLive);
  const reserved = [before.summary.recordedPeakReserved, after.summary.recordedPeakReserved];
  const held =
    reserved[0] === undefined || reserved[1] === undefined
      ? ''
      : ` Peak reserved: ${formatSizes(reserved[0], reserved[1])} (${formatChange(reserved[1], reserved[0])}).`;
  const isElsewhere = alignment.by === 'step' && after.summary.peakLive > alignment.after.bytes * (1 + HIGHER);
  const elsewhere = isElsewhere ? ` The peak of B is not in a step that both have: ${advice}.` : '';
  return `Whole runs: peak live ${live} (${change}).${held}${elsewhere}`;
}

/** What limits the comparison. */
export function diffCautions(diff: Diff): string[] {
  return [
    ...stackCautions(diff),
    ...diff.before.warnings.map(({ message }) => `${isIn(diff.after, message) ? 'A and B' : 'A'}: ${message}`),
    ...diff.after.warnings.filter(({ message }) => !isIn(diff.before, message)).map(({ message }) => `B: ${message}`),
  ];
}

function isIn({ warnings }: DiffSide, message: string): boolean {
  return warnings.some((warning) => warning.message === message);
}

const MOST_FILES = 3;

/** How lines of both runs were taken for the same. */
export function matchNotes({ movedFiles, editedFiles, sites }: Diff): string[] {
  const notes: string[] = [];
  if (movedFiles.length > 0) {
    const pairs = movedFiles.slice(0, MOST_FILES).map(([a, b]) => `${a} = ${b}`);
    const more = movedFiles.length > MOST_FILES ? ` and ${movedFiles.length - MOST_FILES} more` : '';
    notes.push(`Files taken for the same by the end of their paths: ${pairs.join(', ')}${more}.`);
  }
  const moved = sites.filter((site) => site.movedFrom !== undefined).length;
  if (moved > 0)
    notes.push(
      `Lines moved in ${formatTimes(editedFiles.length, 'file', 'files')}. They are matched by function, by what they call, and by their order.`,
    );
  return notes;
}

function stackCautions({ before, after }: Diff): string[] {
  const lacks = (side: DiffSide) => side.located < 0.5;
  const advice = 'record with weir record, or with stacks="all" in PyTorch';
  if (lacks(before) && lacks(after)) return [`Most of the memory has no call stack, so its lines are unknown: ${advice}.`];
  if (lacks(before)) return [`Most of the memory of A has no call stack, so its lines are unknown: ${advice}.`];
  if (lacks(after)) return [`Most of the memory of B has no call stack, so its lines are unknown: ${advice}.`];
  return [];
}

export function siteWords(site: SiteChange): string {
  const moved = site.movedFrom === undefined ? '' : ` (in A: ${site.movedFrom})`;
  return site.label + moved + callersWords(site.callers.slice(0, 1));
}

// The difference between two runs as JSON, schema 1 (docs/json.md). Fields are only ever added; bytes are numbers.
import { type Diff, type DiffSide, growthOf } from './diff.ts';
import { type Json, leakJson, leaksJson, SCHEMA } from './json.ts';
import { hasSteps } from './run-steps.ts';
import { alignmentSentence, diffHeadline } from './words/diff.ts';

export function diffJson(diff: Diff): { [key: string]: Json } {
  const { alignment } = diff;
  const step = alignment.step;
  return {
    schema: SCHEMA,
    headline: diffHeadline(diff),
    before: sideJson(diff.before, alignment.before),
    after: sideJson(diff.after, alignment.after),
    alignment: {
      by: alignment.by,
      step: step ? { number: step.number, isCounted: step.isCounted, common: step.common } : null,
      reason: alignment.reason ?? null,
      sentence: alignmentSentence(diff),
    },
    growth: growthOf(diff),
    growthShare: alignment.before.bytes === 0 ? null : growthOf(diff) / alignment.before.bytes,
    categories: diff.categories?.map((change) => ({ ...change })) ?? null,
    sites: diff.sites.map((site) => ({ ...site, movedFrom: site.movedFrom ?? null, callers: [...site.callers] })),
    newLeaks: diff.newLeaks?.map(leakJson) ?? null,
    movedFiles: diff.movedFiles.map(([before, after]) => ({ before, after })),
    editedFiles: [...diff.editedFiles],
  };
}

function sideJson(side: DiffSide, moment: { readonly event: number; readonly bytes: number }): Json {
  return {
    file: side.file,
    device: side.gpu,
    event: moment.event,
    live: moment.bytes,
    peakLive: side.summary.peakLive,
    peakReserved: side.summary.recordedPeakReserved ?? null,
    recordedAllocator: side.summary.recordedAllocator,
    place: side.place ?? null,
    steps: hasSteps(side.steps) ? { by: side.steps.by, name: side.steps.name, count: side.steps.steps.length } : null,
    located: side.located,
    leaks: leaksJson(side.leaks),
    warnings: side.warnings.map(({ code, message }) => ({ code, message })),
  };
}

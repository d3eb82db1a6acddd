// What one rank or run holds beyond another: the answer in sentences, both verdicts, and what grew by category and by call site.
import { useState } from 'preact/hooks';
import { formatBytes } from '../../src/base/bytes.ts';
import type { AlignmentKind } from '../../src/report/alignment.ts';
import type { Analysis } from '../../src/report/analysis.ts';
import type { CategoryChange, Change, Diff, SiteChange } from '../../src/report/diff.ts';
import { CATEGORY_TITLES } from '../../src/report/words/categories.ts';
import {
  alignmentSentence,
  categorySentence,
  diffCautions,
  diffHeadline,
  formatGrowth,
  growthSentence,
  novelty,
  peaksSentence,
  placesSentence,
  siteWords,
} from '../../src/report/words/diff.ts';
import { formatChange, formatTimes } from '../../src/report/words/numbers.ts';
import { shortNames } from '../../src/view/job-names.ts';
import { rankToOpen } from '../../src/view/job-order.ts';
import { verdictSentences } from '../../src/view/job-words.ts';
import { Progress } from '../app/progress.tsx';
import { main } from '../app/state.ts';
import { type Column, Table } from '../panels/table.tsx';
import {
  canCompare,
  closeDifference,
  comparable,
  comparing,
  type DifferenceChoice,
  difference,
  differenceProblem,
  isComparing,
  keyOf,
  leftVerdict,
  rightVerdict,
  showDifference,
} from './difference-state.ts';
import { type JobRank, jobClock } from './job-state.ts';

const MOMENTS: readonly (readonly [AlignmentKind | '', string])[] = [
  ['', 'the same step, else the peaks'],
  ['peak', 'the peaks'],
  ['end', 'the ends'],
];

export function Difference() {
  const ranks = comparable.value;
  if (!canCompare.value) return null;
  const choice = comparing.value;
  const found = difference.value;
  return (
    <div class="page job">
      <section id="difference" class="card" tabIndex={-1} aria-labelledby="difference-title">
        <div class="card-head">
          <h2 id="difference-title">Difference of two ranks or runs</h2>
          {choice && (
            <button type="button" class="small" onClick={closeDifference}>
              Close
            </button>
          )}
        </div>
        <Choice ranks={ranks} now={choice} key={`${choice?.left} ${choice?.right} ${choice?.by}`} />
        {isComparing.value && !found && <Progress note={{ doing: 'comparing call sites and categories', fraction: 0.5 }} />}
        {differenceProblem.value && (
          <p class="warning" role="alert">
            {differenceProblem.value}
          </p>
        )}
        {found && <Found diff={found.diff} others={found.others} />}
      </section>
    </div>
  );
}

/** A: a healthy rank to compare with. B: the one that is open, else the one that needs an explanation. */
function usual(ranks: readonly JobRank[]): DifferenceChoice {
  const open = ranks.find(({ source, summary }) => source === main.value?.source && summary?.gpu === main.value?.gpu.device);
  const right = open ?? rankToOpen(ranks, jobClock.value) ?? ranks[1]!;
  const others = ranks.filter((rank) => rank !== right);
  const left = others.find(({ summary }) => !summary?.failure) ?? others[0]!;
  return { left: keyOf(left), right: keyOf(right), by: undefined };
}

function Choice({ ranks, now }: { ranks: readonly JobRank[]; now: DifferenceChoice | undefined }) {
  const [picked, setPicked] = useState<Partial<DifferenceChoice>>({});
  const choice = { ...(now ?? usual(ranks)), ...picked };
  const select = (side: 'left' | 'right', label: string) => (
    <label>
      <span>{label}</span>
      <select aria-label={label} value={choice[side]} onChange={(event) => setPicked({ ...picked, [side]: event.currentTarget.value })}>
        {ranks.map((rank) => (
          <option key={keyOf(rank)} value={keyOf(rank)}>
            {rank.name}
          </option>
        ))}
      </select>
    </label>
  );
  return (
    <form
      class="difference-choice"
      onSubmit={(event) => {
        event.preventDefault();
        void showDifference(choice);
      }}
    >
      {select('left', 'A, before')}
      {select('right', 'B, after')}
      <label>
        <span>Compared at</span>
        <select
          value={choice.by ?? ''}
          onChange={(event) => setPicked({ ...picked, by: (event.currentTarget.value || undefined) as AlignmentKind | undefined })}
        >
          {MOMENTS.map(([kind, words]) => (
            <option key={kind} value={kind}>
              {words}
            </option>
          ))}
        </select>
      </label>
      <button type="submit" class="primary">
        Compare
      </button>
      <button type="button" onClick={() => setPicked({ ...picked, left: choice.right, right: choice.left })}>
        Swap A and B
      </button>
    </form>
  );
}

function Found({ diff, others }: { diff: Diff; others: { readonly count: number; readonly bytes: number } }) {
  const answer = [growthSentence(diff), categorySentence(diff)].filter((sentence) => sentence !== undefined);
  const how = [alignmentSentence(diff), placesSentence(diff), peaksSentence(diff, 'choose the peaks above to compare them')].filter(
    (sentence) => sentence !== undefined,
  );
  const files = [diff.before, diff.after];
  const names = shortNames(files.map(({ file }) => file)).map((name, index) =>
    diff.before.file === diff.after.file ? `${name}, GPU ${files[index]!.gpu}` : name,
  );
  return (
    <>
      <p class="headline" data-testid="difference-headline">
        {diffHeadline(diff)}
      </p>
      {answer.map((sentence) => (
        <p key={sentence}>{sentence}</p>
      ))}
      <div class="verdicts">
        <Side letter="A" name={names[0]!} verdict={leftVerdict.value} />
        <Side letter="B" name={names[1]!} verdict={rightVerdict.value} />
      </div>
      {diffCautions(diff).map((caution) => (
        <p class="warning" key={caution}>
          <strong>Warning:</strong> {caution}
        </p>
      ))}
      <div class="difference-tables">
        <div class="scroll-x">
          <h3>By call site</h3>
          {diff.sites.length === 0 ? (
            <p>No call site holds more or less memory in B.</p>
          ) : (
            <Table
              label="Difference by call site"
              columns={SITE_COLUMNS}
              rows={diff.sites}
              keyOf={(site) => `${site.label} ${site.before} ${site.after}`}
            />
          )}
          {others.count > 0 && (
            <p class="faint">
              {formatTimes(others.count, 'other call site', 'other call sites')}: {formatGrowth(others.bytes)} in total.
            </p>
          )}
        </div>
        {diff.categories && diff.categories.length > 0 && (
          <div class="scroll-x">
            <h3>By category</h3>
            <Table label="Difference by category" columns={CATEGORY_COLUMNS} rows={diff.categories} keyOf={({ category }) => category} />
          </div>
        )}
      </div>
      {how.map((sentence) => (
        <p class="faint" key={sentence}>
          {sentence}
        </p>
      ))}
      {!diff.categories && <p class="faint">Categories are not known of both: weir record and weir run record them.</p>}
    </>
  );
}

function Side({ letter, name, verdict }: { letter: string; name: string; verdict: Analysis | undefined }) {
  return (
    <div class="verdict-side" data-testid={`verdict-${letter}`}>
      <p class="faint">
        <strong>{letter}</strong> {name}
      </p>
      {verdict ? (
        verdictSentences(verdict).map((sentence, index) => (
          <p key={sentence} class={index === 0 && verdict.oom ? 'bad strong' : index === 0 ? 'strong' : ''}>
            {sentence}
          </p>
        ))
      ) : (
        <p class="faint">finding the verdict …</p>
      )}
    </div>
  );
}

const changeOf = ({ before, after }: Change) => after - before;
const sizeOf = (bytes: number) => (bytes === 0 ? '–' : formatBytes(bytes));

function changeColumns<Row extends Change>(noteOf: (row: Row) => string): Column<Row>[] {
  return [
    { title: 'A', align: 'right', value: ({ before }) => before, cell: ({ before }) => sizeOf(before) },
    { title: 'B', align: 'right', value: ({ after }) => after, cell: ({ after }) => sizeOf(after) },
    {
      title: 'change',
      align: 'right',
      value: (row) => changeOf(row),
      cell: (row) => (
        <span class={changeOf(row) > 0 ? 'bad strong' : changeOf(row) < 0 ? 'good strong' : 'faint'}>{formatGrowth(changeOf(row))}</span>
      ),
    },
    {
      title: 'in %',
      align: 'right',
      cell: (row) => (row.before === 0 || row.after === 0 ? noteOf(row) : formatChange(row.after, row.before)),
    },
  ];
}

const SITE_COLUMNS: Column<SiteChange>[] = [
  ...changeColumns<SiteChange>(novelty),
  {
    title: 'blocks',
    align: 'right',
    value: (site) => site.allocationsAfter - site.allocationsBefore,
    cell: ({ allocationsBefore, allocationsAfter }) =>
      allocationsBefore === allocationsAfter ? `${allocationsAfter}` : `${allocationsBefore} → ${allocationsAfter}`,
  },
  { title: 'call site', value: ({ label }) => label, cell: (site) => siteWords(site) },
];

const CATEGORY_COLUMNS: Column<CategoryChange>[] = [
  { title: 'category', value: ({ category }) => CATEGORY_TITLES[category], cell: ({ category }) => CATEGORY_TITLES[category] },
  ...changeColumns<CategoryChange>(() => ''),
];

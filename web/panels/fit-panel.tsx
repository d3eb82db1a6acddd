// Why it did not fit, drawn: memory as a strip with its holes, the request to scale above them, and the same moment under an
// allocator that serves it.
import { formatBytes } from '../../src/base/bytes.ts';
import { formatCount, formatTimes } from '../../src/report/words/numbers.ts';
import type { Beside } from '../../src/view/fit-beside.ts';
import { fitScale } from '../../src/view/fit-scale.ts';
import type { FitLane } from '../../src/view/fit-view.ts';
import { besideSentence, fitSentence, misfitTitle } from '../../src/view/fit-words.ts';
import { formatTime } from '../../src/view/ticks.ts';
import { moveTo, moveToMoment } from '../app/selecting.ts';
import { analysis, capacity, main } from '../app/state.ts';
import { FitHoles } from './fit-holes.tsx';
import {
  beside,
  besideLane,
  choices,
  chosenRun,
  event,
  failed,
  failures,
  isKnown,
  misfit,
  order,
  peak,
  recordedLane,
} from './fit-state.ts';
import { PackedStrip, StripLane } from './fit-strips.tsx';

export function FitPanel() {
  if (!main.value) return null;
  return (
    <section id="fit" class="card" tabIndex={-1} aria-labelledby="fit-title">
      <div class="card-head">
        <Title />
        <Subjects />
      </div>
      <Words />
      <Strips />
      <Legend />
      <Scrub />
      <FitHoles />
    </section>
  );
}

function Title() {
  return <h2 id="fit-title">{misfit.value?.kind === 'peak' ? 'Why it needed more memory' : 'Why it did not fit'}</h2>;
}

function Words() {
  const request = misfit.value;
  const lane = recordedLane.value;
  return (
    <p class="fit-words" data-testid="fit-words" aria-live="polite">
      {request && lane && (
        <>
          <strong>{misfitTitle(request)}.</strong> {fitSentence(request, lane)}
        </>
      )}
      {isKnown.value && !request && 'No request needed more memory than what was reserved.'}
    </p>
  );
}

/** What to look at: the last failure, others, the peak. */
function Subjects() {
  const current = misfit.value;
  const last = failed.value.at(-1);
  const isAtCursor = current !== undefined && event.value === current.at;
  return (
    <div class="fit-subjects">
      <fieldset class="switch">
        <legend>Moment</legend>
        {last && (
          <button
            type="button"
            class={isAtCursor && current?.kind === 'failed' ? 'on' : ''}
            aria-pressed={isAtCursor && current?.kind === 'failed'}
            onClick={() => show(last.event)}
          >
            Out of memory
          </button>
        )}
        {peak.value && (
          <button
            type="button"
            class={isAtCursor && current?.kind === 'peak' ? 'on' : ''}
            aria-pressed={isAtCursor && current?.kind === 'peak'}
            onClick={() => moveTo('event', peak.value!.at)}
          >
            Peak
          </button>
        )}
      </fieldset>
      {failed.value.length > 1 && (
        <label>
          Failure
          <select
            aria-label="Failure"
            value={current?.kind === 'failed' ? current.event : ''}
            onChange={(change) => show(Number(change.currentTarget.value))}
          >
            {current?.kind !== 'failed' && <option value="">choose</option>}
            {failed.value.map(({ event: at, bytes }) => (
              <option key={at} value={at}>
                {`${formatBytes(bytes)} at event ${formatCount(at)}`}
              </option>
            ))}
          </select>
          {failures.value > failed.value.length && <span class="faint">the last of {formatCount(failures.value)}</span>}
        </label>
      )}
      <fieldset class="switch">
        <legend>Order of segments</legend>
        <OrderButton kind="hole" name="Largest hole first" />
        <OrderButton kind="address" name="By address" />
      </fieldset>
    </div>
  );
}

/** Moves to a failure, and shows it on the timeline. */
function show(at: number): void {
  const moment = main.value?.gpu.ooms.find((oom) => oom.event === at);
  if (moment) moveToMoment(moment);
  else moveTo('event', at);
}

function OrderButton({ kind, name }: { kind: 'hole' | 'address'; name: string }) {
  const isOn = order.value === kind;
  return (
    <button
      type="button"
      aria-pressed={isOn}
      class={isOn ? 'on' : ''}
      onClick={() => {
        order.value = kind;
      }}
    >
      {name}
    </button>
  );
}

function Strips() {
  const shown = recordedLane.value;
  const second = besideLane.value;
  const request = misfit.value?.bytes ?? 0;
  // Without holes: what is in use, then the request.
  const packed = shown && !beside.value ? shown.strip.used + shown.strip.pending + request : 0;
  const scale = fitScale(
    [shown, second].filter((lane) => lane !== undefined),
    request,
    packed,
  );
  return (
    <div class="fit-lanes">
      <div class="fit-lane" data-testid="fit-recorded">
        <div class="lane-head">
          <strong>As recorded</strong>
          {shown && <Figures lane={shown} />}
        </div>
        <StripLane side="recorded" lane={shown} scale={scale} request={request} />
      </div>
      <div class="fit-lane" data-testid="fit-beside">
        <div class="lane-head">
          <BesideChoice />
          {misfit.value && second && <span data-testid="beside-words">{besideSentence(misfit.value, second)}</span>}
        </div>
        {beside.value || !analysis.value?.isComplete || !shown ? (
          <StripLane side="beside" lane={second} scale={scale} request={request} />
        ) : (
          <PackedStrip lane={{ ...shown, limit: capacity.value ?? shown.limit }} scale={scale} request={request} />
        )}
      </div>
    </div>
  );
}

function Figures({ lane: { strip, limit, unplaced, isModelled } }: { lane: FitLane }) {
  const parts = [
    `${formatBytes(strip.reserved + unplaced)} reserved${limit === undefined ? '' : ` of ${formatBytes(limit)}`}`,
    `${formatBytes(strip.used)} in use`,
    ...(strip.pending > 0 ? [`${formatBytes(strip.pending)} waiting for streams`] : []),
    `${formatBytes(strip.free + unplaced)} free in ${formatTimes(strip.holes.length, 'hole', 'holes')}`,
  ];
  const note = isModelled
    ? ` Weir's engine does not record where blocks lie: this is a replay${unplaced > 0 ? `, and ${formatBytes(unplaced)} free have no known place` : ''}.`
    : '';
  return (
    <span data-testid="fit-figures" data-reserved={strip.reserved} data-free={strip.free}>
      {parts.join(', ')}.{note}
    </span>
  );
}

const MARKS: Record<Beside['verdict'], string> = { fits: 'fits', 'may-fit': 'may fit', fails: 'out of memory', unknown: '' };

function BesideChoice() {
  const facts = analysis.value;
  if (!facts?.isComplete) return <strong>Under another allocator: comparing them …</strong>;
  if (choices.value.length === 0) return <strong>No other allocator was tried</strong>;
  return (
    <label class="beside-choice">
      <strong>{beside.value ? 'Under' : 'No allocator serves it:'}</strong>
      <select
        aria-label="Allocator beside the recorded run"
        value={beside.value?.run ?? ''}
        onChange={(change) => {
          chosenRun.value = change.currentTarget.value || undefined;
        }}
      >
        {!beside.value && <option value="">packed without holes</option>}
        {choices.value.map(({ run, verdict, peakReserved }) => (
          <option key={run} value={run}>
            {`${run}: ${MARKS[verdict] || `peak ${formatBytes(peakReserved)}`}`}
          </option>
        ))}
      </select>
      {beside.value && !besideLane.value && <span class="faint">replaying …</span>}
    </label>
  );
}

function Legend() {
  const entries = [
    ['fit-used', 'in use'],
    ['fit-hole', 'free, for requests like this one'],
    ['fit-other', 'free, for other sizes, streams or pools'],
    ['fit-pending', 'freed, other streams still use it'],
    ['fit-pin', 'pins the selected hole'],
    ['fit-ghost', 'the request, to scale'],
  ] as const;
  return (
    <div class="legend fit-legend">
      {entries.map(([look, text]) => (
        <span class="legend-entry" key={look}>
          <span class={`swatch ${look}`} />
          <span>{text}</span>
        </span>
      ))}
    </div>
  );
}

/** Moves the cursor of the page, so that the timeline and the map follow. */
function Scrub() {
  const { gpu } = main.value!;
  const at = Math.max(0, event.value ?? 0);
  const shown = recordedLane.value;
  const time = gpu.durationUs > 0 && shown ? `, ${formatTime(shown.timeUs, 100)}` : '';
  return (
    <div class="fit-scrub">
      <label for="fit-scrub">Moment</label>
      <input
        id="fit-scrub"
        type="range"
        min={0}
        max={Math.max(0, gpu.events - 1)}
        value={at}
        aria-valuetext={`event ${formatCount(at)}${time}`}
        onInput={(change) => moveTo('event', Number(change.currentTarget.value))}
      />
      <output for="fit-scrub" data-testid="fit-moment">
        event {formatCount(at)}
        {time}
      </output>
    </div>
  );
}

// Legends of the tracks: the bands at the cursor, with their growth since the step before, and the colours of the map.
import { formatBytes } from '../../src/base/bytes.ts';
import { formatCount } from '../../src/report/words/numbers.ts';
import { CATEGORY_ORDER, type ColourMode, isScale } from '../../src/view/block-classes.ts';
import { colourOf, css, DARK_MAP, LIGHT_MAP, type MapTheme } from '../../src/view/colours.ts';
import { type BandBytes, isRest } from '../../src/view/stack-view.ts';
import { formatTime } from '../../src/view/ticks.ts';
import { block, colour, cursor, lanes, legend, main, selection } from '../app/state.ts';
import { isDark } from '../app/theme.ts';
import { bands, isBandSelected, ruler, stackAtCursor, stackBy } from './stack-state.ts';

export function themeNow(): MapTheme {
  return isDark.value ? DARK_MAP : LIGHT_MAP;
}

/** The mode of colours that bands share with the map. */
export function bandColours(): ColourMode {
  return stackBy.value === 'site' ? 'stack' : 'category';
}

/** `+12.00 MiB`, `−3.00 GiB`, or `±0`. */
export function changeWords(bytes: number): string {
  return bytes === 0 ? '±0' : `${bytes > 0 ? '+' : '−'}${formatBytes(Math.abs(bytes))}`;
}

/** `step 3, backward, event 12,345, 1.234 s`. */
export function placeWords({ step, phase, event, timeUs }: BandBytes): string {
  const isTimed = (main.value?.gpu.durationUs ?? 0) > 0;
  return [
    step === undefined ? undefined : `step ${step}`,
    phase,
    event < 0 ? 'start' : `event ${formatCount(event)}`,
    isTimed ? formatTime(timeUs) : undefined,
  ]
    .filter((part) => part !== undefined)
    .join(', ');
}

/** Live memory by meaning at the cursor. Each band is a button that selects what it holds. */
export function BandLegend() {
  const known = bands.value;
  const mode = stackBy.value;
  if (!known || mode === 'none') return null;
  const now = stackAtCursor.value?.bytes.length === known.bands.length ? stackAtCursor.value : undefined;
  const { before } = now ?? {};
  const theme = themeNow();
  const entries = known.bands.map((entry, index) => ({ entry, index })).reverse();
  return (
    <section
      class="bands"
      aria-label={mode === 'site' ? 'Live memory by call site, at the cursor' : 'Live memory by category, at the cursor'}
    >
      <p class="bands-place" data-testid="bands-place">
        {now ? (
          <>
            <strong>{formatBytes(now.live)} live</strong> at the cursor: {placeWords(now)}.{' '}
            <span class="faint">
              {before
                ? `${changeWords(now.live - before.live)} since the same place of step ${before.step} (event ${formatCount(before.event)}).`
                : ruler.value &&
                  (ruler.value.stepEvent.length === 0
                    ? 'No steps were found to compare with.'
                    : 'There is no step before it to compare with.')}
            </span>
          </>
        ) : (
          <span class="faint">…</span>
        )}
      </p>
      <ul class={mode === 'site' ? 'bands-list wide' : 'bands-list'}>
        {entries.map(({ entry, index }) => {
          const category = mode === 'category' ? CATEGORY_ORDER[entry.kind] : undefined;
          const isSelected = isBandSelected(entry.label, mode, category) === true;
          const grown = now && before ? now.bytes[index]! - before.bytes[index]! : undefined;
          return (
            <li key={entry.label}>
              <button
                type="button"
                class="band"
                aria-pressed={isSelected}
                title={isRest(entry) && mode === 'site' ? entry.label : `show ${entry.label} alone`}
                disabled={isRest(entry) && mode === 'site'}
                onClick={() => {
                  selection.value = isSelected ? {} : category ? { category } : { site: entry.label };
                }}
              >
                <span
                  class={isRest(entry) ? 'swatch hatched' : 'swatch'}
                  style={{ backgroundColor: css(colourOf(bandColours(), entry.kind, theme)) }}
                />
                <span class="band-name">{entry.label}</span>
                <span class="band-bytes" data-bytes={now?.bytes[index]}>
                  {now ? formatBytes(now.bytes[index]!) : ''}
                </span>
                <span class={grown ? 'band-change' : 'band-change faint'} data-grown={grown}>
                  {grown === undefined ? '' : changeWords(grown)}
                </span>
              </button>
            </li>
          );
        })}
      </ul>
      {(known.found !== '' || known.hint !== '') && (
        <p class="bands-found faint">
          {known.hint !== '' && <span data-testid="bands-hint">{withCode(known.hint)} </span>}
          {known.found}
          {ruler.value?.isGuess && mode === 'category' && ' Phases are guessed from the rise and fall of live memory.'}
        </p>
      )}
    </section>
  );
}

/** Words between backticks are code. */
function withCode(text: string) {
  return text.split('`').map((part, index) => (index % 2 === 1 ? <code key={part}>{part}</code> : part));
}

export function Legend() {
  const mode = colour.value;
  const theme = themeNow();
  const swatch = (background: string, text: string, kind = 'swatch') => (
    <span class="legend-entry" title={text} key={text}>
      <span class={kind} style={{ background }} />
      <span class="legend-text">{text}</span>
    </span>
  );
  const { node, site, category, search } = selection.value;
  const isSelecting = node !== undefined || site !== undefined || category !== undefined || search !== undefined;
  const isStacked = stackBy.value !== 'none';
  return (
    <div class="legend">
      <span class="legend-group">
        <span class="faint">timeline:</span>
        {swatch(css(theme.held), 'reserved')}
        {isStacked ? swatch('var(--text)', 'allocated', 'swatch line dotted') : swatch('var(--allocated)', 'allocated')}
        {!isStacked && swatch('var(--live)', 'live', 'swatch line')}
        {main.value && main.value.gpu.ooms.length > 0 && swatch('var(--bad)', 'out of memory', 'swatch line')}
        {lanes.value.length > 1 && swatch('var(--other)', 'reserved by B', 'swatch line')}
      </span>
      <span class="legend-group" data-testid="map-legend">
        <span class="faint">map:</span>
        {swatch(css(theme.held), 'held, free')}
        {isSelecting
          ? [swatch(css(theme.selected), 'selected'), swatch(css(theme.faded), 'everything else')]
          : isScale(mode)
            ? legend.value.map((entry) => (
                <span class="legend-step" key={entry.kind}>
                  <span class="swatch" style={{ background: css(colourOf(mode, entry.kind, theme)) }} />
                  {entry.label}
                </span>
              ))
            : legend.value.map((entry) => swatch(css(colourOf(mode, entry.kind, theme)), entry.label))}
      </span>
      {cursor.value && block.value && (
        <span class="legend-group">
          <span class="legend-entry">
            <span class="swatch outline" style={{ borderColor: css(theme.selected) }} />
            selected: {formatBytes(block.value.requested)} at {block.value.address}
          </span>
        </span>
      )}
    </div>
  );
}

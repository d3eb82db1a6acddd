// The top bar: the open recording, search, theme and help.
import { formatCount } from '../../src/report/words/numbers.ts';
import { shortNames } from '../../src/view/job-names.ts';
import { saveView, saving } from '../job/saving.ts';
import { pickFile } from './files.ts';
import { openSource, showSource } from './opening.ts';
import { SearchBox } from './search-box.tsx';
import { isHelpOpen, loading, main, problem, sources } from './state.ts';
import { isDark, toggleTheme } from './theme.ts';

export function Header() {
  const lane = main.value;
  const gpus = lane?.source.info?.gpus ?? [];
  // They are there before a recording is, so that nothing moves when it comes.
  const hasSources = sources.value.length > 0;
  const names = shortNames(sources.value.map(({ name }) => name));
  return (
    <header class="top">
      <span class="brand">
        <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
          <rect width="32" height="32" rx="7" fill="#0072b2" />
          <path d="M6 12h9v8h11" fill="none" stroke="#fff" stroke-width="3" stroke-linejoin="round" stroke-linecap="round" />
          <path d="M6 17h5v8h15" fill="none" stroke="#9fd3f5" stroke-width="3" stroke-linejoin="round" stroke-linecap="round" />
        </svg>
        Weir
      </span>
      {sources.value.length > 1 && (lane || loading.value) ? (
        <select aria-label="Recording" value={lane?.source.name} onChange={(event) => void showSource(event.currentTarget.value)}>
          {sources.value.map((source, index) => (
            <option key={source.name} value={source.name} disabled={source.isKept === false}>
              {names[index]}
            </option>
          ))}
        </select>
      ) : (
        lane && (
          <span class="file" title={lane.source.name}>
            {names[0]}
          </span>
        )
      )}
      {lane && gpus.length > 1 && (
        <select
          aria-label="GPU"
          value={lane.gpu.device}
          onChange={(event) => void openSource(lane.source, { gpu: Number(event.currentTarget.value) })}
        >
          {gpus.map((gpu) => (
            <option key={gpu.device} value={gpu.device}>
              GPU {gpu.device}
            </option>
          ))}
        </select>
      )}
      {lane && (
        <span class="faint counts">
          {formatCount(lane.gpu.events)} events
          {lane.gpu.durationUs > 0 && `, ${(lane.gpu.durationUs / 1e6).toFixed(1)} s`}
        </span>
      )}
      {lane && loading.value && <span class="faint">{loading.value.doing} …</span>}
      <span class="space" />
      {hasSources && <SearchBox />}
      {hasSources && (
        <button
          type="button"
          onClick={() => void saveView()}
          disabled={!lane || saving.value !== undefined}
          title="save what is shown as one HTML file, without the folders of this machine"
        >
          {saving.value ? `Saving ${Math.round(saving.value.fraction * 100)} %` : 'Save as HTML'}
        </button>
      )}
      <button type="button" onClick={() => void pickFile()}>
        Open…
      </button>
      <button type="button" onClick={toggleTheme} aria-label={isDark.value ? 'Light theme' : 'Dark theme'} title="light or dark">
        {isDark.value ? '☀' : '☾'}
      </button>
      <button
        type="button"
        aria-label="Help"
        title="keys and gestures (?)"
        onClick={() => {
          isHelpOpen.value = true;
        }}
      >
        ?
      </button>
    </header>
  );
}

export function ProblemBar() {
  if (!problem.value) return null;
  return (
    <div class="problem" role="alert">
      <span>{problem.value}</span>
      <button
        type="button"
        class="small"
        onClick={() => {
          problem.value = undefined;
        }}
      >
        Close
      </button>
    </div>
  );
}

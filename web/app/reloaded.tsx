// Files that were open before the page was loaded again. A browser does not keep files, so the page keeps their names only, for
// as long as the tab is open, and says what it misses.
import { effect, signal } from '@preact/signals';
import { pickFile } from './files.ts';
import { sources } from './state.ts';

const KEY = 'weir-files';
const MOST_NAMES = 3;

/** Names of files that are missing now. */
const missing = signal<readonly string[]>(remembered());

effect(() => {
  const names = sources.value.filter(({ isLocal }) => isLocal).map(({ name }) => name);
  if (names.length === 0) return;
  store(names);
});

/** Called with files that are opened: whether they are those that were missing. */
export function takeReloaded(names: readonly string[]): boolean {
  const wasMissing = names.some((name) => missing.value.includes(name));
  missing.value = missing.value.filter((name) => !names.includes(name));
  return wasMissing;
}

export function ReloadNotice() {
  const names = missing.value;
  if (names.length === 0) return null;
  const shown = names.slice(0, MOST_NAMES).join(', ') + (names.length > MOST_NAMES ? ` and ${names.length - MOST_NAMES} more` : '');
  return (
    <div class="notice" role="status" data-testid="reloaded">
      <span>
        <strong>{shown}</strong> {names.length === 1 ? 'was' : 'were'} open before this page was loaded again. A browser does not keep
        files: choose {names.length === 1 ? 'it' : 'them'} again to see the same view.
      </span>
      <span class="buttons">
        <button type="button" class="primary" onClick={() => pickFile()}>
          Choose {names.length === 1 ? 'it' : 'them'} again
        </button>
        <button
          type="button"
          onClick={() => {
            missing.value = [];
            store([]);
          }}
        >
          Forget
        </button>
      </span>
    </div>
  );
}

function remembered(): readonly string[] {
  try {
    const names: unknown = JSON.parse(sessionStorage.getItem(KEY) ?? '[]');
    return Array.isArray(names) ? names.filter((name) => typeof name === 'string') : [];
  } catch {
    return [];
  }
}

function store(names: readonly string[]): void {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(names));
  } catch {
    // A page from the disk may have no storage. Then nothing is missed after a reload.
  }
}

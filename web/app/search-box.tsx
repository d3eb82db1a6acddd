// The search box of the top bar: finds moments and blocks while the user types, and goes from one to the next with Enter.
import { useEffect, useRef, useState } from 'preact/hooks';
import { formatCount } from '../../src/report/words/numbers.ts';
import { moveToMoment, runSearch, selectBlock } from './selecting.ts';
import { searchResult, selection } from './state.ts';

export function SearchBox() {
  const [at, setAt] = useState(-1);
  const isNextWanted = useRef(false);
  const [text, setText] = useState(selection.value.search ?? '');
  const searched = selection.value.search;
  // Answers to earlier text come late and must not replace what the user is typing.
  useEffect(() => {
    if (document.activeElement?.id !== 'search') setText(searched ?? '');
  }, [searched]);
  const found = searchResult.value;
  const total = found ? found.moments.length + found.total : 0;
  const next = (by: number) => {
    if (!found || total === 0) return;
    const count = found.moments.length + found.hits.length;
    const index = (at + by + count) % count;
    setAt(index);
    const moment = found.moments[index];
    if (moment) moveToMoment(moment);
    else void selectBlock(found.hits[index - found.moments.length]!, true);
  };
  // Enter right after typing means the typed text, whose search may not have finished.
  const goOn = () => {
    if (!isNextWanted.current || searched !== text) return;
    isNextWanted.current = false;
    next(1);
  };
  useEffect(goOn);
  return (
    <search>
      <form
        class="search"
        onSubmit={(event) => {
          event.preventDefault();
          isNextWanted.current = true;
          goOn();
        }}
      >
        <input
          id="search"
          type="search"
          aria-label="Search for a frame, a text of the program, a category, a size, an address or an event"
          placeholder="frame, name, 20MiB, #event"
          value={text}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setAt(-1);
            runSearch(event.currentTarget.value);
          }}
        />
        <span class="hits" data-testid="hits" role="status">
          {found && (total === 0 ? 'nothing found' : `${at >= 0 ? `${at + 1} / ` : ''}${formatCount(total)}`)}
        </span>
        {found && total === 0 && (
          <div class="search-note" data-testid="searched">
            Searched: {found.searched}
          </div>
        )}
      </form>
    </search>
  );
}

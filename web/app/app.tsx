// The page as a whole: its sections and their order.
import { signal } from '@preact/signals';
import { Share } from '../panels/advice.tsx';
import { FitPanel } from '../panels/fit-panel.tsx';
import { LivePanel } from '../panels/live-panel.tsx';
import { feedState, LiveRanks } from '../panels/live-ranks.tsx';
import { Plan } from '../panels/plan.tsx';
import { Verdict } from '../panels/verdict.tsx';
import { WhatIf } from '../panels/what-if.tsx';
import { Tracks } from '../tracks/tracks.tsx';
import { Empty } from './empty.tsx';
import { Header, ProblemBar } from './header.tsx';
import { Help } from './help.tsx';
import { openSource } from './opening.ts';
import { Progress } from './progress.tsx';
import { loading, main, type OpenSource, sources } from './state.ts';
import { Toolbar } from './toolbar.tsx';

export const isDropping = signal(false);

export function App() {
  return (
    <>
      <Header />
      <ProblemBar />
      {feedState.value !== 'off' && (
        <div class="page">
          <LiveRanks canOpen={sources.value.length > 0} onOpen={() => void openSource(sources.value[0] as OpenSource)} />
        </div>
      )}
      {main.value ? <Page /> : feedState.value === 'off' || loading.value ? <Empty /> : null}
      <Help />
      {isDropping.value && <div class="dropping">Drop it: nothing leaves your computer</div>}
    </>
  );
}

function Page() {
  // Where a request failed, that is the question. Elsewhere the timeline comes first.
  const hasFailed = (main.value?.gpu.ooms.length ?? 0) > 0;
  return (
    <main class="page">
      <div class="first">
        <Verdict />
        <WhatIf />
      </div>
      {hasFailed && <FitPanel />}
      <section id="tracks" class="card" tabIndex={-1} aria-label="Timeline and fragmentation map">
        <Toolbar />
        <Tracks />
        {loading.value && <Progress note={loading.value} />}
      </section>
      {!hasFailed && <FitPanel />}
      <LivePanel />
      <Plan />
      <Share />
    </main>
  );
}

// The page as a whole: its sections and their order.
import { signal } from '@preact/signals';
import { Difference } from '../job/difference.tsx';
import { Live } from '../job/live.tsx';
import { isLive } from '../job/live-state.ts';
import { Overview } from '../job/overview.tsx';
import { Share } from '../panels/advice.tsx';
import { FitPanel } from '../panels/fit-panel.tsx';
import { LivePanel } from '../panels/live-panel.tsx';
import { Plan } from '../panels/plan.tsx';
import { Verdict } from '../panels/verdict.tsx';
import { WhatIf } from '../panels/what-if.tsx';
import { Tracks } from '../tracks/tracks.tsx';
import { ValuePanel } from '../values/value-panel.tsx';
import { Empty } from './empty.tsx';
import { Header, ProblemBar } from './header.tsx';
import { Help } from './help.tsx';
import { Progress } from './progress.tsx';
import { ReloadNotice } from './reloaded.tsx';
import { isStarting, loading, main, sources } from './state.ts';
import { Toolbar } from './toolbar.tsx';

export const isDropping = signal(false);

export function App() {
  return (
    <>
      <Header />
      <ProblemBar />
      <ReloadNotice />
      <Live />
      {!isLive.value && <Overview />}
      {main.value ? <Page /> : isStarting.value ? null : loading.value || (!isLive.value && sources.value.length === 0) ? <Empty /> : null}
      {!isLive.value && main.value && <Difference />}
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
      <ValuePanel />
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

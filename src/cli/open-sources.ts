// The recordings whose threads run now. Each keeps its recording in memory, so only the few that were asked last keep theirs:
// whoever clicks through 64 ranks must not fill the machine.
import type { Source } from '../server/app.ts';
import type { ViewSource } from './view-source.ts';

/** The recording shown, one beside it, and some to go back to. */
const MOST_OPEN = 6;

export class OpenSources {
  readonly sources: readonly Source[];
  private readonly views: readonly ViewSource[];
  /** The latest last. */
  private readonly open: ViewSource[] = [];

  constructor(views: readonly ViewSource[]) {
    this.views = views;
    this.sources = views.map((view) => ({
      name: view.name,
      ask: (question, signal) => {
        this.use(view);
        return view.ask(question, signal);
      },
      prepare: () => view.prepare(),
      progress: (method) => view.progress(method),
    }));
  }

  close(): void {
    for (const view of this.views) view.close();
  }

  private use(view: ViewSource): void {
    const at = this.open.indexOf(view);
    if (at >= 0) this.open.splice(at, 1);
    this.open.push(view);
    for (let index = 0; this.open.length > MOST_OPEN && index < this.open.length - 1; ) {
      if (this.open[index]!.isBusy) index++;
      else this.open.splice(index, 1)[0]!.close();
    }
  }
}

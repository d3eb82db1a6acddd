// What the views of one GPU are made from. The page waits for the description alone, so each part is made when it is first needed.
import { Notes } from '../trace/notes.ts';
import type { Trace } from '../trace/trace.ts';
import { BlockClasses } from './block-classes.ts';
import { Clock } from './clock.ts';
import { Lifetimes } from './lifetimes.ts';
import { MinMax } from './min-max.ts';
import { SiteNames } from './site-names.ts';
import { StackView } from './stack-view.ts';
import { liveBytes } from './timeline.ts';

export class GpuParts {
  readonly clock: Clock;
  private readonly trace: Trace;
  private readonly made = new Map<string, unknown>();

  constructor(trace: Trace) {
    this.trace = trace;
    this.clock = new Clock(trace);
  }

  get lifetimes(): Lifetimes {
    return this.once('lifetimes', () => new Lifetimes(this.trace));
  }

  get live(): Float64Array {
    return this.once('live', () => liveBytes(this.trace));
  }

  get liveRange(): MinMax {
    return this.once('liveRange', () => new MinMax(this.live));
  }

  get classes(): BlockClasses {
    return this.once('classes', () => new BlockClasses(this.trace, this.clock, this.lifetimes));
  }

  /** Live memory by meaning. It is the same in every run. */
  get stack(): StackView {
    return this.once('stack', () => new StackView(this.trace, this.clock, this.lifetimes, this.liveRange, this.classes));
  }

  get notes(): Notes {
    return this.once('notes', () => new Notes(this.trace));
  }

  get sites(): SiteNames {
    return this.once('sites', () => new SiteNames(this.trace));
  }

  private once<Part>(name: string, make: () => Part): Part {
    let part = this.made.get(name) as Part | undefined;
    if (part === undefined) {
      part = make();
      this.made.set(name, part);
    }
    return part;
  }
}

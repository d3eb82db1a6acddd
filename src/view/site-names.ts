// The name under which the page lists a block: its call site; without any stacks, its category and size.
import { formatBytes } from '../base/bytes.ts';
import { categoriesOf } from '../report/categories.ts';
import { labelOf } from '../report/sites.ts';
import { CATEGORY_TITLES } from '../report/words/categories.ts';
import { isOlder } from '../trace/stacks.ts';
import { NO_STACK } from '../trace/symbols.ts';
import type { Trace } from '../trace/trace.ts';
import { nodeOf } from './flame.ts';

export class SiteNames {
  private readonly trace: Trace;
  private readonly hasStacks: boolean;
  private readonly byNode = new Map<number, string>();

  constructor(trace: Trace) {
    this.trace = trace;
    this.hasStacks = trace.symbols.stacks.count > 0;
  }

  of(allocation: number): string {
    if (!this.hasStacks) return this.withoutStacks(allocation);
    const node = nodeOf(this.trace, allocation);
    let label = this.byNode.get(node);
    if (label === undefined) {
      label = labelOf(this.trace, node < 0 ? NO_STACK : node, isOlder(this.trace, allocation));
      this.byNode.set(node, label);
    }
    return label;
  }

  /** That no stack was recorded would be the same sentence in every row. */
  private withoutStacks(allocation: number): string {
    const { category } = categoriesOf(this.trace).of(allocation);
    const what = category === 'unknown' ? 'blocks' : CATEGORY_TITLES[category];
    return `${what} of ${formatBytes(this.trace.allocations.requested[allocation]!)}`;
  }
}

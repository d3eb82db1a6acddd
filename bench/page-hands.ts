// What a person does on the canvas of the tracks, for bench/page.ts, and how long answers to the pointer take.
import type { Page } from 'playwright-core';

export interface Answers {
  readonly over: string;
  readonly answers: number;
  /** From the move of the pointer to the answer on the page. */
  readonly medianMs: number;
  readonly p99Ms: number;
  readonly worstMs: number;
}

/** What a person does on the canvas of the tracks. Heights are from its top. */
export class Hands {
  private readonly page: Page;
  private readonly box: { readonly x: number; readonly y: number; readonly width: number };

  constructor(page: Page, box: Hands['box']) {
    this.page = page;
    this.box = box;
  }

  async moveTo(y: number): Promise<void> {
    await this.page.mouse.move(this.box.x + this.box.width / 2, this.box.y + y);
  }

  async press(key: string): Promise<void> {
    await this.page.keyboard.press(key);
    await this.page.waitForTimeout(40);
  }

  async wheel(by: number): Promise<void> {
    await this.page.mouse.wheel(0, by);
    await this.page.waitForTimeout(25);
  }

  async drag(y: number, by: number): Promise<void> {
    const middle = this.box.x + this.box.width / 2;
    await this.moveTo(y);
    await this.page.mouse.down();
    for (let step = 1; step <= 40; step++) {
      await this.page.mouse.move(middle + (by * step) / 40, this.box.y + y);
      await this.page.waitForTimeout(16);
    }
    await this.page.mouse.up();
  }

  /** Moves across the canvas, and times each answer from the last move before it. */
  async hover(over: string, y: number): Promise<Answers> {
    const { page, box } = this;
    await page.evaluate(`(() => {
      window.moves = [];
      window.answers = [];
      document.querySelector('.track-canvas').addEventListener('pointermove', (event) => moves.push(event.timeStamp));
      window.watching?.disconnect();
      window.watching = new PerformanceObserver((list) =>
        answers.push(...list.getEntriesByName('weir-hover').map((mark) => mark.startTime)));
      watching.observe({ entryTypes: ['mark'] });
    })()`);
    for (let step = 0; step <= 80; step++) {
      await page.mouse.move(box.x + 80 + ((box.width - 100) * step) / 80, box.y + y + (step % 7) * 6);
      await page.waitForTimeout(25);
    }
    await page.waitForTimeout(300);
    const waits = (await page.evaluate('answers.map((at) => at - moves.findLast((time) => time <= at))')) as number[];
    const sorted = waits.sort((a, b) => a - b);
    return { over, answers: waits.length, medianMs: shareOf(sorted, 0.5), p99Ms: shareOf(sorted, 0.99), worstMs: shareOf(sorted, 1) };
  }
}

/** The value below which a share of the sorted values lies. */
export function shareOf(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

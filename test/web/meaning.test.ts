// The stacked timeline in a real browser: bands and their exact bytes, tensors, growth, gestures by wheel and touch, and what is
// drawn where a recording ends.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, CDPSession, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { CATEGORY_NAMES, type Category, PhaseMark } from '../../src/abi/events.ts';
import { formatBytes } from '../../src/base/bytes.ts';
import { categoriesAt, categoriesOf } from '../../src/report/categories.ts';
import { CATEGORY_TITLES } from '../../src/report/words/categories.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { EventStore } from '../../src/trace/event-store.ts';
import { Symbols } from '../../src/trace/symbols.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { writeWeir } from '../../src/trace/weir/writer.ts';
import { CATEGORY_ORDER } from '../../src/view/block-classes.ts';
import { DARK_MAP, LIGHT_MAP, type Rgb } from '../../src/view/colours.ts';
import { oneStreamTrace } from '../support/one-stream.ts';
import { readSample } from '../support/samples.ts';
import { CHROMIUM, launch, NO_BROWSER, type Served, serve, type Watch, watch } from './browser.ts';

const STACKS = 'samples/gpt2xl-oom.pickle.gz';
const PLAIN = 'samples/vgg16-b100.native.pickle.gz';
const MIB = 2 ** 20;
const folder = mkdtempSync(join(tmpdir(), 'weir-meaning-'));
const TOLD = join(folder, 'told.weir');

/** Heights on the canvas where there are steps and phases, in pixels from its top. */
const TIMELINE = { top: 76, bottom: 292 };
const MAP = { top: 314, bottom: 530 };

if (!CHROMIUM) console.log(NO_BROWSER);

describe.skipIf(!CHROMIUM)(`the stacked timeline${CHROMIUM ? '' : ' (skipped: there is no Chromium)'}`, () => {
  let browser: Browser;
  let served: Served;
  let page: Page;
  let seen: Watch;
  let trace: Trace;

  beforeAll(async () => {
    trace = readRecording(readSample('gpt2xl-oom.pickle.gz')).traces[0]!;
    writeTold(TOLD);
    [browser, served] = await Promise.all([launch(), serve([STACKS, PLAIN, TOLD])]);
  });
  afterAll(async () => {
    await browser.close();
    await served.stop();
    rmSync(folder, { recursive: true });
  });
  afterEach(async () => {
    expect(seen.complaints).toEqual([]);
    await page.context().close();
  });

  async function open(file: string, { hash = '', width = 1440, ...options }: Options = {}): Promise<void> {
    const context = await browser.newContext({ viewport: { width, height: 900 }, ...options });
    page = await context.newPage();
    seen = watch(page);
    await page.goto(`${served.url}#file=${encodeURIComponent(file)}&${hash}`);
    await page.getByTestId('headline').waitFor({ timeout: 60_000 });
    await page.getByTestId('bands-place').filter({ hasText: 'at the cursor' }).waitFor();
    await page.keyboard.press('3');
    await untilStacked();
  }

  /** Polls, because the page's content security policy forbids `waitForFunction`. */
  async function untilStacked(): Promise<void> {
    await expect.poll(() => page.evaluate("performance.getEntriesByName('weir-stack').length"), { timeout: 15_000 }).toBeGreaterThan(0);
  }

  const hash = () => new URLSearchParams(new URL(page.url()).hash.slice(1));
  const viewNow = async () => {
    await page.waitForTimeout(250);
    return { from: Number(hash().get('from') ?? 0), to: Number(hash().get('to') ?? Number.POSITIVE_INFINITY) };
  };
  const canvasBox = async () => (await page.locator('.track-canvas').boundingBox())!;
  const bandBytes = async () =>
    Object.fromEntries(
      await page
        .locator('.band')
        .evaluateAll((rows) =>
          rows.map((row) => [
            row.querySelector('.band-name')!.textContent,
            Number(row.querySelector('.band-bytes')!.getAttribute('data-bytes')),
          ]),
        ),
    ) as Record<string, number>;
  const isNear = (one: Rgb, other: Rgb) => one.every((channel, index) => Math.abs(channel - other[index]!) <= 2);
  /** Pixels of the canvas from top to bottom, at a share of its width. */
  const coloursIn = async (share: number, rows: { top: number; bottom: number }): Promise<Rgb[]> =>
    (await page.evaluate(`(() => {
      const canvas = document.querySelector('.track-canvas');
      const ratio = canvas.width / canvas.clientWidth;
      const height = Math.round(${rows.bottom - rows.top} * ratio);
      const { data } = canvas.getContext('2d').getImageData(Math.round(${share} * canvas.width), Math.round(${rows.top} * ratio), 1, height);
      return Array.from({ length: height }, (_, row) => [...data.slice(row * 4, row * 4 + 3)]);
    })()`)) as Rgb[];

  it.each([1440, 1280, 390])('draws categories from the bottom up, inside its card, %i pixels wide', async (width) => {
    await open(STACKS, { width });
    expect(Object.keys(await bandBytes())).toEqual(['unknown', 'temporaries', 'activations', 'gradients', 'optimizer state', 'parameters']);
    const expected = categoriesAt(trace, 54_894);
    const shown = await bandBytes();
    for (const [category, bytes] of Object.entries(expected.bytes))
      if (bytes > 0) expect.soft(shown[CATEGORY_TITLES[category as Category]], category).toBe(bytes);
    // Parameters lie at the bottom, the optimizer's state on them, and grey, memory that is held and free, above all.
    const colours = await coloursIn(0.8, TIMELINE);
    const order = [LIGHT_MAP.held, LIGHT_MAP.categories[1]!, LIGHT_MAP.categories[0]!].map((colour) =>
      colours.findIndex((candidate) => isNear(candidate, colour)),
    );
    expect(order.every((at) => at >= 0)).toBe(true);
    expect([...order].sort((a, b) => a - b)).toEqual(order);
    const tooWide = "(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(document.querySelector('#tracks'))";
    expect(await page.evaluate(tooWide)).toBeLessThanOrEqual(0);
  });

  it('answers a pointer with the exact bytes of every band', async () => {
    await open(STACKS);
    const box = await canvasBox();
    for (const share of [0.3, 0.62, 0.9]) {
      await page.mouse.move(box.x + box.width * share, box.y + TIMELINE.bottom - 20);
      await page.locator('.moment-tip').waitFor();
      await expect.poll(() => page.locator('.moment-tip tr.on').innerText()).toContain('parameters');
      const text = await page.locator('.moment-tip').innerText();
      const event = Number(/event ([\d,]+)/.exec(text)![1]!.replaceAll(',', ''));
      const expected = categoriesAt(trace, event);
      const bytes = await page
        .locator('.moment-tip tbody td[data-bytes]')
        .evaluateAll((cells) => cells.map((cell) => Number(cell.getAttribute('data-bytes'))));
      const wanted = CATEGORY_ORDER.toReversed().map((category) => expected.bytes[category]);
      expect(bytes.filter((size) => size > 0)).toEqual(wanted.filter((size) => size > 0));
      const total = async (name: string) => Number(await page.locator(`.moment-tip [data-total=${name}]`).getAttribute('data-bytes'));
      expect(await total('live')).toBe(expected.live);
      expect(await total('allocated')).toBeGreaterThanOrEqual(expected.live);
      expect(await total('reserved')).toBeGreaterThanOrEqual(await total('allocated'));
      await page.mouse.move(5, 5);
      await page.locator('.moment-tip').waitFor({ state: 'detached' });
    }
  });

  it('selects the tensor that is clicked, and shows it in its own colour', async () => {
    await open(PLAIN, { hash: 'axis=event&from=60&to=320' });
    const box = await canvasBox();
    await page.mouse.click(box.x + box.width * 0.8, box.y + TIMELINE.bottom - 60);
    await page.getByTestId('block').waitFor();
    await expect.poll(() => hash().get('block')).toMatch(/^\d+$/);
    const plain = readRecording(readSample('vgg16-b100.native.pickle.gz')).traces[0]!;
    const allocation = Number(hash().get('block'));
    expect(plain.allocations.requested[allocation]).toBeGreaterThan(64 * MIB);
    expect(categoriesOf(plain).of(allocation).category).toBe('activation');
    await expect.poll(async () => (await coloursIn(0.804, TIMELINE)).some((colour) => isNear(colour, LIGHT_MAP.selected))).toBe(true);
  });

  it('is divided by call site or not at all, by keyboard, and a link brings that back', async () => {
    await open(STACKS, { hash: 'cursor=43000' });
    const select = page.getByLabel('Stack by');
    await select.focus();
    await page.keyboard.type('call');
    await page.keyboard.press('Tab');
    await page.locator('.band', { hasText: 'gpt2xl/train.py:65 step' }).waitFor();
    await expect.poll(() => hash().get('stack')).toBe('site');
    await expect
      .poll(async () => Object.values(await bandBytes()).reduce((sum, bytes) => sum + bytes, 0))
      .toBe(categoriesAt(trace, 43_000).live);
    // The map takes the same colours.
    expect(await page.getByLabel('Colour map by').inputValue()).toBe('stack');
    await page.reload();
    await page.locator('.band', { hasText: 'gpt2xl/train.py:65 step' }).waitFor();
    await page.getByLabel('Stack by').selectOption('none');
    await page.locator('.bands').waitFor({ state: 'detached' });
    expect(await page.getByTestId('map-legend').innerText()).toContain('gpt2xl/train.py:65 step');
  });

  it('compares with the same place of the step before', async () => {
    await open(STACKS, { hash: 'cursor=43000' });
    const words = await page.getByTestId('bands-place').innerText();
    expect(words).toContain('step 2, backward, event 43,000');
    const before = Number(/same place of step 1 \(event ([\d,]+)\)/.exec(words)![1]!.replaceAll(',', ''));
    const [now, then] = [categoriesAt(trace, 43_000), categoriesAt(trace, before)];
    const grown = await page.locator('.band', { hasText: 'activations' }).locator('[data-grown]').getAttribute('data-grown');
    expect(Number(grown)).toBe(now.bytes.activation - then.bytes.activation);
  });

  it('shows one band alone, in an accent that is not grey, and the rest faded', async () => {
    await open(STACKS);
    const lowest = async () => (await coloursIn(0.8, { top: MAP.bottom - 8, bottom: MAP.bottom - 7 }))[0];
    const band = page.locator('.band', { hasText: 'parameters' });
    await band.click();
    expect(await band.getAttribute('aria-pressed')).toBe('true');
    expect(await page.getByTestId('map-legend').innerText()).toContain('selected');
    await expect.poll(() => lowest()).toEqual([...LIGHT_MAP.selected]);
    await expect.poll(async () => (await coloursIn(0.8, MAP)).some((colour) => isNear(colour, LIGHT_MAP.faded))).toBe(true);
    await page.keyboard.press('Escape');
    await expect.poll(() => lowest()).toEqual([...LIGHT_MAP.categories[0]!]);
  });

  it('says what is unknown, and how to record it', async () => {
    await open(PLAIN, { hash: 'stack=site', colorScheme: 'dark' });
    expect(await page.getByTestId('bands-hint').innerText()).toContain('weir record --stacks');
    await page.getByLabel('Stack by').selectOption('category');
    await expect.poll(() => page.locator('.bands-found').innerText()).toContain('found by lifetimes (a guess)');
    await expect.poll(async () => (await coloursIn(0.4, TIMELINE)).some((colour) => isNear(colour, DARK_MAP.categories[6]!))).toBe(true);
  });

  it('shows what a process told of its memory', async () => {
    await open(TOLD);
    expect(await page.locator('.bands-found').innerText()).not.toContain('guess');
    expect(await page.locator('.bands-found').innerText()).toContain('what the process told: 100.0 %.');
    expect(await bandBytes()).toMatchObject({ parameters: 64 * MIB, 'optimizer state': 128 * MIB });
    // The cursor is at the peak. Each step keeps one batch more, and its gradient is larger.
    expect(await page.getByTestId('bands-place').innerText()).toContain('+9 MiB since the same place of step 2');
    expect(await page.locator('.band', { hasText: 'buffers' }).locator('[data-grown]').getAttribute('data-grown')).toBe(String(8 * MIB));
  });

  it('has a scale of the sizes that there are', async () => {
    await open(STACKS);
    await page.getByLabel('Colour map by').selectOption('size');
    const most = Math.max(...trace.allocations.requested.subarray(0, trace.allocations.count));
    const legend = () => page.getByTestId('map-legend').innerText();
    await expect.poll(legend).toContain('up to');
    expect(await legend()).toContain(formatBytes(most));
    // Parameters and activations are of other sizes.
    const colours = new Set((await coloursIn(0.8, MAP)).map(String));
    expect(colours.size).toBeGreaterThan(8);
  });

  it('scrolls with the wheel, zooms with Ctrl, pans with Shift or sideways, and zooms in bytes with both', async () => {
    await open(STACKS, { hash: 'from=1000000&to=3000000' });
    const box = await canvasBox();
    await page.mouse.move(box.x + box.width / 2, box.y + 150);
    const scroll = () => page.evaluate('scrollY') as Promise<number>;
    const start = await scroll();
    // Panels above may still move it by a few pixels.
    const isAt = async (place: number) => Math.abs((await scroll()) - place) < 20;
    await page.mouse.wheel(0, -120);
    await expect.poll(() => isAt(start - 120)).toBe(true);
    expect(await viewNow()).toEqual({ from: 1_000_000, to: 3_000_000 });
    await page.mouse.wheel(0, 120);
    await expect.poll(() => isAt(start)).toBe(true);
    await page.keyboard.down('Control');
    await page.mouse.wheel(0, -240);
    await page.keyboard.up('Control');
    const near = await viewNow();
    expect(near.to - near.from).toBeCloseTo(2e6 * Math.exp(-240 * 0.0016), -2);
    await page.keyboard.down('Shift');
    await page.mouse.wheel(0, 100);
    await page.keyboard.up('Shift');
    const panned = await viewNow();
    expect(panned.from).toBeGreaterThan(near.from);
    expect(panned.to - panned.from).toBeCloseTo(near.to - near.from, 0);
    await page.mouse.wheel(-100, 0);
    expect((await viewNow()).from).toBeCloseTo(near.from, 0);
    expect(await isAt(start)).toBe(true);
    // Zoomed in bytes, parameters fill what three bands filled.
    const bytes = () =>
      coloursIn(0.52, TIMELINE).then((colours) => colours.filter((colour) => isNear(colour, LIGHT_MAP.categories[0]!)).length);
    const before = await bytes();
    await page.mouse.move(box.x + box.width / 2, box.y + TIMELINE.bottom - 1);
    await page.keyboard.down('Control');
    await page.keyboard.down('Shift');
    await page.mouse.wheel(0, -600);
    await page.keyboard.up('Shift');
    await page.keyboard.up('Control');
    await expect.poll(bytes).toBeGreaterThan(before * 1.8);
    await page.keyboard.press('0');
    await expect.poll(bytes).toBeLessThanOrEqual(before + 1);
  });

  describe('by touch', () => {
    let touch: CDPSession;
    const at = (...points: readonly (readonly [number, number])[]) => points.map(([x, y], id) => ({ x, y, id }));
    const send = (type: 'touchStart' | 'touchMove' | 'touchEnd', ...points: readonly (readonly [number, number])[]) =>
      touch.send('Input.dispatchTouchEvent', { type, touchPoints: at(...points) });

    async function openTouched(more: string): Promise<{ x: number; y: number; width: number }> {
      await open(STACKS, { hash: more, width: 390, hasTouch: true });
      touch = await page.context().newCDPSession(page);
      return await canvasBox();
    }

    it('pans the map with one finger, zooms with two, and scrubs on the timeline', async () => {
      const box = await openTouched('from=1000000&to=3000000');
      const y = box.y + MAP.top + 40;
      await send('touchStart', [box.x + 200, y]);
      for (const x of [190, 170, 140, 120]) await send('touchMove', [box.x + x, y]);
      await send('touchEnd');
      const panned = await viewNow();
      expect(panned.from).toBeGreaterThan(1_200_000);
      expect(panned.to - panned.from).toBeCloseTo(2e6, -1);
      await send('touchStart', [box.x + 150, y], [box.x + 250, y]);
      for (const by of [10, 20, 35, 50]) await send('touchMove', [box.x + 150 - by, y], [box.x + 250 + by, y]);
      await send('touchEnd');
      const zoomed = await viewNow();
      expect((zoomed.to - zoomed.from) / 2e6).toBeCloseTo(0.5, 1);
      const cursor = () => page.getByTestId('bands-place').innerText();
      const before = await cursor();
      await send('touchStart', [box.x + 100, box.y + 200]);
      for (const x of [120, 150, 200]) await send('touchMove', [box.x + x, box.y + 200]);
      await send('touchEnd');
      await expect.poll(cursor).not.toBe(before);
      expect(await viewNow()).toEqual(zoomed);
    });

    it('scrolls the page with a finger that moves up, and nothing else moves', async () => {
      const box = await openTouched('from=1000000&to=3000000');
      const cursor = await page.getByTestId('bands-place').innerText();
      const start = (await page.evaluate('scrollY')) as number;
      for (const y of [TIMELINE.top + 20, MAP.top - 60]) {
        await send('touchStart', [box.x + 150, box.y + y]);
        for (let by = 12; by <= 120; by += 12) await send('touchMove', [box.x + 150 + by / 12, box.y + y - by]);
        await send('touchEnd');
      }
      await expect.poll(() => page.evaluate('scrollY')).toBeGreaterThan(start + 80);
      expect(await page.getByTestId('bands-place').innerText()).toBe(cursor);
      expect(await viewNow()).toEqual({ from: 1_000_000, to: 3_000_000 });
    });
  });

  it('stops where a recording ends that is shorter than the one beside it', async () => {
    await open(PLAIN, { hash: `with=${encodeURIComponent(`file:${STACKS}`)}` });
    await page.getByTestId('difference').waitFor();
    const share = (time: number) => (64 + (time / 3.670309) * (1376 - 64)) / 1386;
    const colours = [...LIGHT_MAP.categories, LIGHT_MAP.held];
    const drawn = async (at: number, rows: { top: number; bottom: number }) =>
      (await coloursIn(at, rows)).some((colour) => colours.some((known) => isNear(colour, known)));
    const maps = { top: TIMELINE.bottom + 50, bottom: TIMELINE.bottom + 170 };
    await expect.poll(() => drawn(share(0.7), TIMELINE)).toBe(true);
    await expect.poll(() => drawn(share(0.7), maps)).toBe(true);
    for (const time of [1, 2, 3.3])
      expect.soft([await drawn(share(time), TIMELINE), await drawn(share(time), maps)]).toEqual([false, false]);
  });
});

interface Options {
  readonly hash?: string;
  readonly width?: number;
  readonly colorScheme?: 'dark' | 'light';
  readonly hasTouch?: boolean;
}

/** Three steps of a process that told what everything holds, and kept a batch of each step. */
function writeTold(path: string): void {
  const store = new EventStore();
  const symbols = new Symbols();
  let time = 0;
  let next = 2 ** 32;
  const alloc = (size: number, category: Category) => {
    const address = next;
    next += size;
    store.append(EventKind.Alloc, address, size, time++, 0, 0, -1, 0);
    const row = store.append(EventKind.Category, address, 0, time++, 0, 0, -1, 0);
    store.setOptional(row, 'detail', CATEGORY_NAMES.indexOf(category));
    return { address, size };
  };
  const free = ({ address, size }: { address: number; size: number }) => {
    store.append(EventKind.FreeRequested, address, size, time++, 0, 0, -1, 0);
    store.append(EventKind.FreeCompleted, address, size, time++, 0, 0, -1, 0);
  };
  const mark = (text: string) => {
    store.setOptional(store.append(EventKind.Mark, 0, 0, time++, 0, 0, -1, 0), 'detail', symbols.internString(text));
  };
  alloc(64 * MIB, 'parameter');
  alloc(128 * MIB, 'optimizerState');
  for (let step = 0; step < 3; step++) {
    mark(PhaseMark.step);
    alloc(8 * MIB, 'buffer');
    const activations = [1, 2, 3].map((layer) => alloc(layer * 16 * MIB, 'activation'));
    mark(PhaseMark.backward);
    const gradient = alloc((65 + step) * MIB, 'gradient');
    for (const activation of activations.reverse()) free(activation);
    mark(PhaseMark.optimizer);
    free(gradient);
  }
  const chunks: Uint8Array[] = [];
  writeWeir({ format: 'weir', traces: [oneStreamTrace(store.view(), symbols)], warnings: [] } as never, (chunk) =>
    chunks.push(chunk.slice()),
  );
  writeFileSync(path, Buffer.concat(chunks));
}

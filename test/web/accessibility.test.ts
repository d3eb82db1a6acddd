// The page for everybody: axe finds no serious barrier on any kind of page in either theme, every control has its turn with the
// Tab key, and figures that are colours stand out from their ground.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CHROMIUM, launch, NO_BROWSER, type Served, serve, untilAnalysed } from './browser.ts';

const OOM_SAMPLE = 'samples/gpt2xl-oom.pickle.gz';
const SAMPLE = 'samples/vgg16-b100.native.pickle.gz';
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const LEAST_CONTRAST = 3;

interface Violation {
  readonly id: string;
  readonly impact: string;
  readonly nodes: readonly { readonly html: string }[];
}

if (!CHROMIUM) console.log(NO_BROWSER);

describe.skipIf(!CHROMIUM)(`the page for everybody${CHROMIUM ? '' : ' (skipped: there is no Chromium)'}`, () => {
  let browser: Browser;
  const servers: Record<string, Served> = {};

  beforeAll(async () => {
    const [launched, files, empty, live] = await Promise.all([
      launch(),
      serve([OOM_SAMPLE, SAMPLE]),
      serve([]),
      serve([SAMPLE, OOM_SAMPLE, '--live', '--speed', '4']),
    ]);
    browser = launched;
    Object.assign(servers, { files, empty, live });
  });
  afterAll(async () => {
    await browser.close();
    await Promise.all(Object.values(servers).map((server) => server.stop()));
  });

  async function open(server: string, hash: string, colorScheme: 'light' | 'dark', width = 1440): Promise<Page> {
    const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
    const page = await context.newPage();
    await page.goto(`${servers[server]!.url}${hash}`);
    return page;
  }

  const file = (name: string) => `#file=${encodeURIComponent(name)}`;
  const PAGES: readonly (readonly [string, string, string, (page: Page) => Promise<unknown>])[] = [
    ['a run that failed', 'files', file(OOM_SAMPLE), untilAnalysed],
    [
      'two runs compared',
      'files',
      `${file(OOM_SAMPLE)}&with=weir`,
      async (page) => {
        await untilAnalysed(page);
        await page.getByTestId('difference').waitFor({ timeout: 20_000 });
      },
    ],
    [
      'a plan',
      'files',
      file(SAMPLE),
      async (page) => {
        await untilAnalysed(page);
        await page.locator('#plan').waitFor({ timeout: 20_000 });
      },
    ],
    [
      'the help',
      'files',
      file(SAMPLE),
      async (page) => {
        await untilAnalysed(page);
        await page.keyboard.press('?');
        await page.getByRole('dialog').waitFor();
      },
    ],
    [
      'a search and a selected block',
      'files',
      `${file(OOM_SAMPLE)}&search=forward&block=500`,
      async (page) => {
        await untilAnalysed(page);
        await page.getByTestId('block').waitFor();
      },
    ],
    ['the empty page', 'empty', '', (page) => page.getByRole('heading', { name: 'Drop a memory snapshot here' }).waitFor()],
    ['ranks that run', 'live', '', (page) => page.getByTestId('rank-1').waitFor()],
  ];

  describe.each(PAGES)('%s', (_, server, hash, ready) => {
    it.each([
      ['light', 1440],
      ['dark', 1440],
      ['light', 390],
    ] as const)('has no serious barrier (%s, %d px)', async (theme, width) => {
      const page = await open(server, hash, theme, width);
      await ready(page);
      await page.evaluate(AXE);
      const { violations } = (await page.evaluate('axe.run(document)')) as { violations: Violation[] };
      const found = violations
        .filter(({ impact }) => impact === 'serious' || impact === 'critical')
        .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(' ')}`);
      expect(found).toEqual([]);
      await page.context().close();
    });
  });

  it('gives every control its turn with the Tab key, and shows which one has it', async () => {
    const page = await open('files', file(OOM_SAMPLE), 'light');
    await untilAnalysed(page);
    await page.getByTestId('flame-words').waitFor();
    const wanted = (await page.evaluate(`(() => {
      const all = [...document.querySelectorAll('button, input, select, summary, canvas[tabindex], tr[tabindex], [role=tab]')];
      const visible = all.filter((element) => element.checkVisibility() && !element.disabled && element.tabIndex >= 0);
      visible.forEach((element, index) => { element.dataset.order = index; });
      document.body.focus();
      return visible.length;
    })()`)) as number;
    expect(wanted).toBeGreaterThan(40);
    const reached = new Set<string>();
    const unmarked: string[] = [];
    // The body and boxes that scroll have turns too.
    for (let press = 0; press < 2 * wanted && reached.size < wanted; press++) {
      await page.keyboard.press('Tab');
      const { order, outline, html } = (await page.evaluate(`(() => {
        const element = document.activeElement;
        return { order: element.dataset.order, outline: getComputedStyle(element).outlineStyle, html: element.outerHTML.slice(0, 80) };
      })()`)) as { order?: string; outline: string; html: string };
      if (order === undefined) continue;
      reached.add(order);
      if (outline === 'none') unmarked.push(html);
    }
    expect(reached.size).toBe(wanted);
    expect(unmarked).toEqual([]);
    await page.context().close();
  });

  it.each(['light', 'dark'] as const)('draws bars that stand out from their ground, and their text from them (%s)', async (theme) => {
    const page = await open('files', file(OOM_SAMPLE), theme);
    await untilAnalysed(page);
    const contrasts = (await page.evaluate(`(() => {
      const rgb = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
      const luminance = (colour) => {
        const [red, green, blue] = rgb(colour).map((value) => value / 255).map((value) => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
      };
      const contrast = (one, other) => {
        const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
      };
      const bar = document.querySelector('.bar');
      const kinds = ['used', 'fragmented', 'other-streams', 'other-pools', 'small-segments', 'pending', 'rounding'];
      for (const kind of kinds) {
        const part = document.createElement('span');
        part.className = 'bar-part part-' + kind;
        part.dataset.made = kind;
        bar.append(part);
      }
      const ground = getComputedStyle(bar.closest('.card')).backgroundColor;
      return [...bar.querySelectorAll('[data-made]'), ...document.querySelectorAll('.small-bar')].map((part) => {
        const { backgroundColor, color, opacity } = getComputedStyle(part);
        return { what: part.dataset.made ?? 'small bar', ground: contrast(backgroundColor, ground) * (opacity === '1' ? 1 : 0), text: contrast(backgroundColor, color), hasText: part.className.startsWith('bar-part') };
      });
    })()`)) as { what: string; ground: number; text: number; hasText: boolean }[];
    expect(contrasts.length).toBeGreaterThan(7);
    for (const { what, ground, text, hasText } of contrasts) {
      expect(ground, what).toBeGreaterThanOrEqual(LEAST_CONTRAST);
      if (hasText) expect(text, what).toBeGreaterThanOrEqual(4.5);
    }
    await page.context().close();
  });
});

// Light or dark theme: as the system says, until the user chooses. The choice is stored if the browser allows it.
import { computed, effect, type ReadonlySignal, signal } from '@preact/signals';

export type Choice = 'system' | 'light' | 'dark';
const KEY = 'weir-theme';

const systemDark = matchMedia('(prefers-color-scheme: dark)');
const isSystemDark = signal(systemDark.matches);
systemDark.addEventListener('change', (event) => {
  isSystemDark.value = event.matches;
});

export const choice = signal<Choice>(remembered());

/** How wide canvases are drawn for paper, in CSS pixels: about as wide as A4 and Letter are. */
export const PAPER_WIDTH = 720;

/** Paper is white. Whoever draws has to do it at once, since the browser does not wait. */
export const isPrinting = signal(false);
const print = matchMedia('print');
const setPrinting = () => {
  isPrinting.value = print.matches;
};
print.addEventListener('change', setPrinting);
addEventListener('beforeprint', () => {
  isPrinting.value = true;
});
addEventListener('afterprint', setPrinting);

export const isDark: ReadonlySignal<boolean> = computed(
  () => !isPrinting.value && (choice.value === 'system' ? isSystemDark.value : choice.value === 'dark'),
);

effect(() => {
  document.documentElement.dataset['theme'] = isDark.value ? 'dark' : 'light';
});

export function toggleTheme(): void {
  const next: Choice = isDark.value ? 'light' : 'dark';
  // A choice that equals the system's theme means: follow the system again.
  choice.value = (next === 'dark') === isSystemDark.value ? 'system' : next;
  try {
    localStorage.setItem(KEY, choice.value);
  } catch {
    // A page from the disk may have no storage. The choice then lasts until the page closes.
  }
}

function remembered(): Choice {
  try {
    const stored = localStorage.getItem(KEY);
    return stored === 'light' || stored === 'dark' ? stored : 'system';
  } catch {
    return 'system';
  }
}

/** A colour of the stylesheet, for canvases. */
export function themeColour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Light or dark: as the system says, until somebody chooses. The choice is remembered where the browser allows it.
import { computed, effect, type ReadonlySignal, signal } from '@preact/signals';

export type Choice = 'system' | 'light' | 'dark';
const KEY = 'weir-theme';

const systemDark = matchMedia('(prefers-color-scheme: dark)');
const isSystemDark = signal(systemDark.matches);
systemDark.addEventListener('change', (event) => {
  isSystemDark.value = event.matches;
});

export const choice = signal<Choice>(remembered());
export const isDark: ReadonlySignal<boolean> = computed(() => (choice.value === 'system' ? isSystemDark.value : choice.value === 'dark'));

effect(() => {
  document.documentElement.dataset['theme'] = isDark.value ? 'dark' : 'light';
});

export function toggleTheme(): void {
  const next: Choice = isDark.value ? 'light' : 'dark';
  // Back to what the system says, if that is the same: then it is followed again.
  choice.value = (next === 'dark') === isSystemDark.value ? 'system' : next;
  try {
    localStorage.setItem(KEY, choice.value);
  } catch {
    // A page from the disk may have no storage; then the choice lasts as long as the page.
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

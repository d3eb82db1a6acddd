// Tabs as WAI-ARIA describes them: one stop for the Tab key, arrow keys, Home and End choose, and each tab names its panel.
import type { ComponentChildren } from 'preact';

export interface Tab<Name extends string> {
  readonly name: Name;
  readonly title: string;
}

interface Props<Name extends string> {
  /** Begins the ids of the tabs and of their panel. */
  readonly id: string;
  readonly label: string;
  readonly tabs: readonly Tab<Name>[];
  readonly shown: Name;
  onShow(name: Name): void;
  readonly note?: string;
}

export function TabList<Name extends string>({ id, label, tabs, shown, onShow, note }: Props<Name>) {
  const move = (event: KeyboardEvent) => {
    const now = tabs.findIndex(({ name }) => name === shown);
    const target = {
      ArrowRight: (now + 1) % tabs.length,
      ArrowLeft: (now + tabs.length - 1) % tabs.length,
      Home: 0,
      End: tabs.length - 1,
    }[event.key];
    const next = target === undefined ? undefined : tabs[target];
    if (!next) return;
    event.preventDefault();
    onShow(next.name);
    document.getElementById(tabId(id, next.name))?.focus();
  };
  return (
    <div class="panel-bar">
      <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
        {tabs.map(({ name, title }) => (
          <button
            key={name}
            id={tabId(id, name)}
            type="button"
            role="tab"
            aria-selected={name === shown}
            aria-controls={`${id}-panel`}
            tabIndex={name === shown ? 0 : -1}
            class={name === shown ? 'tab on' : 'tab'}
            onClick={() => onShow(name)}
          >
            {title}
          </button>
        ))}
      </div>
      {note && <span class="faint tab-note">{note}</span>}
    </div>
  );
}

export function TabPanel<Name extends string>({ id, shown, children }: { id: string; shown: Name; children: ComponentChildren }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, with keys too
    <div id={`${id}-panel`} class="table-scroll" role="tabpanel" aria-labelledby={tabId(id, shown)} tabIndex={0}>
      {children}
    </div>
  );
}

function tabId(id: string, name: string): string {
  return `${id}-tab-${name}`;
}

// The toolbar of timeline and map: allocator, comparison, axis, colours, and jumps.
import { COLOUR_MODES, type ColourMode } from '../../src/view/block-classes.ts';
import type { AxisKind } from '../../src/view/clock.ts';
import { shortNames } from '../../src/view/job-names.ts';
import { RECORDED } from '../../src/view/protocol.ts';
import { STACK_MODES, type StackMode } from '../../src/view/stack-columns.ts';
import { chooseStack, chosenStack, stackBy } from '../tracks/stack-state.ts';
import { KEY_ACTIONS } from './keyboard.ts';
import { chooseRun, compareWith, comparison } from './opening.ts';
import { chooseAxis } from './selecting.ts';
import { axis, colour, main, sources } from './state.ts';

const COLOUR_NAMES: Record<ColourMode, string> = {
  category: 'category',
  stream: 'stream',
  size: 'size',
  age: 'age',
  lifetime: 'lifetime',
  stack: 'call site',
};

const STACK_NAMES: Record<StackMode, string> = { category: 'category', site: 'call site', none: 'nothing' };

export function Toolbar() {
  const lane = main.value;
  if (!lane) return null;
  const { choices } = lane.run;
  const others = sources.value.filter((source) => source !== lane.source && source.isKept !== false);
  const names = shortNames(sources.value.map(({ name }) => name));
  const modes = COLOUR_MODES.filter((mode) => mode !== 'stack' || lane.gpu.hasStacks);
  return (
    <div class="toolbar">
      <label>
        Show
        <select value={lane.run.run} onChange={(event) => void chooseRun(event.currentTarget.value)}>
          <option value={RECORDED}>as recorded</option>
          {choices.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label>
        Compare with
        <select aria-label="Compare with" value={comparison()} onChange={(event) => void compareWith(event.currentTarget.value)}>
          <option value="">nothing</option>
          <optgroup label="the same run under">
            {lane.run.run !== RECORDED && <option value={RECORDED}>as recorded</option>}
            {choices
              .filter((name) => name !== lane.run.run)
              .map((name) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
          </optgroup>
          {others.length > 0 && (
            <optgroup label="another recording">
              {others.map((source) => (
                <option key={source.name} value={`file:${source.name}`}>
                  {names[sources.value.indexOf(source)]}
                </option>
              ))}
            </optgroup>
          )}
        </select>
      </label>
      <label>
        Stack by
        <select value={chosenStack.value ?? stackBy.value} onChange={(event) => chooseStack(event.currentTarget.value as StackMode)}>
          {STACK_MODES.map((mode) => (
            <option key={mode} value={mode}>
              {STACK_NAMES[mode]}
            </option>
          ))}
        </select>
      </label>
      <label>
        Colour map by
        <select
          value={colour.value}
          onChange={(event) => {
            colour.value = event.currentTarget.value as ColourMode;
          }}
        >
          {modes.map((mode) => (
            <option key={mode} value={mode}>
              {COLOUR_NAMES[mode]}
            </option>
          ))}
        </select>
      </label>
      <fieldset class="switch">
        <legend>Axis</legend>
        {lane.gpu.durationUs > 0 && <AxisButton name="Time" kind="time" />}
        <AxisButton name="Events" kind="event" />
      </fieldset>
      <span class="space" />
      <KeyButton keyName="w" text="+" />
      <KeyButton keyName="s" text="−" />
      <KeyButton keyName="0" text="Fit" />
      <KeyButton keyName="p" text="Peak" />
      {lane.gpu.ooms.length > 0 && <KeyButton keyName="o" text="OOM" />}
      <KeyButton keyName="m" text="Mark" />
    </div>
  );
}

function AxisButton({ name, kind }: { name: string; kind: AxisKind }) {
  return (
    <button type="button" aria-pressed={axis.value === kind} class={axis.value === kind ? 'on' : ''} onClick={() => chooseAxis(kind)}>
      {name}
    </button>
  );
}

function KeyButton({ keyName, text }: { keyName: string; text: string }) {
  const action = KEY_ACTIONS.find(({ keys }) => keys.includes(keyName))!;
  return (
    <button type="button" title={`${action.what} (${keyName.toUpperCase()})`} aria-label={action.what} onClick={() => action.run()}>
      {text}
    </button>
  );
}

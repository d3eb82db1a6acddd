// What the pointer is over: a block of the map, or a moment of the stacked timeline with every band.
import { formatBytes } from '../../src/base/bytes.ts';
import { colourOf, css } from '../../src/view/colours.ts';
import type { BlockInfo } from '../../src/view/protocol.ts';
import { isRest } from '../../src/view/stack-view.ts';
import { formatTime } from '../../src/view/ticks.ts';
import { bandColours, changeWords, placeWords, themeNow } from './legend.tsx';
import { bands, type StackAnswer } from './stack-state.ts';

export interface Hover {
  readonly x: number;
  readonly y: number;
  /** Width of the tracks. */
  readonly width: number;
  readonly block?: BlockInfo | undefined;
  /** The moment under the pointer, and the band; -1: none. */
  readonly moment?: StackAnswer | undefined;
  readonly band?: number | undefined;
}

export function HoverTip({ hover }: { hover: Hover }) {
  const { moment, block } = hover;
  if (!moment && !block) return null;
  const isRight = hover.x > hover.width / 2;
  const place = { top: `${hover.y + 14}px`, ...(isRight ? { right: `${hover.width - hover.x + 14}px` } : { left: `${hover.x + 14}px` }) };
  return (
    <div class={moment ? 'tip moment-tip' : 'tip'} role="tooltip" style={place}>
      {moment ? <MomentTip moment={moment} band={hover.band ?? -1} /> : block && <BlockWords block={block} />}
    </div>
  );
}

function MomentTip({ moment, band }: { moment: StackAnswer; band: number }) {
  const theme = themeNow();
  const { before, block } = moment;
  const entries = (bands.value?.bands ?? []).map((entry, index) => ({ entry, index })).reverse();
  return (
    <>
      {block && <BlockWords block={block} />}
      <div class={block ? 'tip-place' : ''}>{placeWords(moment)}</div>
      <table class="tip-bands">
        {before && (
          <thead>
            <tr>
              <td />
              <td />
              <td class="right faint">now</td>
              <td class="right faint">since step {before.step}</td>
            </tr>
          </thead>
        )}
        <tbody>
          {entries
            .filter(({ index }) => moment.bytes[index]! > 0 || (before?.bytes[index] ?? 0) > 0)
            .map(({ entry, index }) => (
              <tr key={entry.label} class={index === band ? 'on' : ''}>
                <td>
                  <span
                    class={isRest(entry) ? 'swatch hatched' : 'swatch'}
                    style={{ backgroundColor: css(colourOf(bandColours(), entry.kind, theme)) }}
                  />
                </td>
                <td class="tip-name">{entry.label}</td>
                <td class="right" data-bytes={moment.bytes[index]}>
                  {formatBytes(moment.bytes[index]!)}
                </td>
                {before && <td class="right">{changeWords(moment.bytes[index]! - before.bytes[index]!)}</td>}
              </tr>
            ))}
        </tbody>
        <tfoot>
          {(['live', 'allocated', 'reserved'] as const).map((name) => (
            <tr key={name}>
              <td />
              <td>{name}</td>
              <td class="right" data-total={name} data-bytes={moment[name]}>
                {formatBytes(moment[name])}
              </td>
              {before && <td class="right">{name === 'live' ? changeWords(moment.live - before.live) : ''}</td>}
            </tr>
          ))}
        </tfoot>
      </table>
    </>
  );
}

function BlockWords({ block }: { block: BlockInfo }) {
  const life = block.end ? formatTime(block.end.timeUs - block.start.timeUs) : 'to the end';
  return (
    <div>
      <strong>{formatBytes(block.requested)}</strong> {block.site}
      <div class="faint">
        {block.address} · stream {block.stream} · lived {life}
        {formatBytes(block.size) !== formatBytes(block.requested) && ` · ${formatBytes(block.size)} given out`}
      </div>
    </div>
  );
}

// A line plot as SVG: logarithmic x, y from 0, one line per series in colour-blind-safe colours, labelled at its end.

export interface Series {
  readonly name: string;
  readonly points: readonly (readonly [x: number, y: number])[];
}

const WIDTH = 760;
const HEIGHT = 380;
const LEFT = 60;
const RIGHT = 230;
const TOP = 40;
const BOTTOM = 50;
const COLOURS = ['#0072b2', '#d55e00', '#009e73', '#cc79a7'];

export function plotLogarithmic(title: string, xTitle: string, series: readonly Series[]): string {
  const drawn = series.filter((line) => line.points.length > 0);
  const xs = drawn.flatMap((line) => line.points.map(([x]) => Math.log10(x)));
  const [low, high] = [Math.min(...xs), Math.max(...xs)];
  const step = niceStep(Math.max(...drawn.flatMap((line) => line.points.map(([, y]) => y))));
  const top = Math.ceil(Math.max(...drawn.flatMap((line) => line.points.map(([, y]) => y))) / step) * step;
  const toX = (x: number) => LEFT + ((Math.log10(x) - low) / (high - low)) * (WIDTH - LEFT - RIGHT);
  const toY = (y: number) => HEIGHT - BOTTOM - (y / top) * (HEIGHT - TOP - BOTTOM);

  const parts: string[] = [];
  for (let y = 0; y <= top; y += step) {
    parts.push(`<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${toY(y)}" y2="${toY(y)}" stroke="#ddd"/>`);
    parts.push(`<text x="${LEFT - 8}" y="${toY(y) + 4}" text-anchor="end">${y}</text>`);
  }
  for (let power = Math.ceil(low); power <= high; power++) {
    parts.push(
      `<text x="${toX(10 ** power)}" y="${HEIGHT - BOTTOM + 20}" text-anchor="middle">${(10 ** power).toLocaleString('en-US')}</text>`,
    );
  }
  const labels = spread(drawn.map((line) => toY(line.points.at(-1)![1])));
  drawn.forEach((line, index) => {
    const colour = COLOURS[index % COLOURS.length]!;
    const path = line.points.map(([x, y]) => `${toX(x).toFixed(1)},${toY(y).toFixed(1)}`).join(' ');
    parts.push(`<polyline points="${path}" fill="none" stroke="${colour}" stroke-width="2"/>`);
    parts.push(`<text x="${WIDTH - RIGHT + 8}" y="${labels[index]! + 4}" fill="${colour}">${line.name}</text>`);
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}" font-family="sans-serif" font-size="13">
<rect width="100%" height="100%" fill="white"/>
<text x="${LEFT}" y="24" font-size="16">${title}</text>
<text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${HEIGHT - 10}" text-anchor="middle">${xTitle}</text>
${parts.join('\n')}
</svg>
`;
}

function niceStep(largest: number): number {
  const rough = largest / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough)!;
}

/** Moves overlapping labels apart. */
function spread(positions: readonly number[]): number[] {
  const order = positions.map((_, index) => index).sort((a, b) => positions[a]! - positions[b]!);
  const moved = [...positions];
  order.forEach((index, place) => {
    const above = place > 0 ? moved[order[place - 1]!]! : Number.NEGATIVE_INFINITY;
    moved[index] = Math.max(positions[index]!, above + 16);
  });
  return moved;
}

import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'vitest';
import { readWeir } from '../../src/trace/weir/reader.ts';
test('x', () => {
  const f = readdirSync('/tmp/rec/w').find((n) => /^odd\.\d+\.weir$/.test(n))!;
  const t = readWeir(readFileSync('/tmp/rec/w/' + f)).traces[0]!;
  const exp = JSON.parse(readFileSync('/tmp/rec/w/expected.json', 'utf8'));
  let bad = 0, n = 0;
  for (let e = 0; e < t.events.count; e++) {
    if (t.events.kind[e] !== 0 && t.events.size[e] === undefined) continue;
    const want = exp[String(t.events.size[e])];
    const fr = [...t.symbols.framesOf(t.events.stack[e]!)];
    if (!want || fr.length === 0) continue;
    n++;
    const got = fr.reverse().map((x) => [x.name.split('.').at(-1), x.filename, x.line]);
    const w = want.slice(-250);
    if (JSON.stringify(got) !== JSON.stringify(w)) { bad++; const k = w.findIndex((x: unknown, i: number) => JSON.stringify(x) !== JSON.stringify(got[i])); console.log(t.events.size[e], got.length, w.length, 'at', k, JSON.stringify(got[k])?.slice(0, 200), JSON.stringify(w[k])?.slice(0, 200)); }
  }
  console.log({ n, bad, warnings: t.warnings });
});

// Feeds damaged inputs to all readers: `npm run fuzz -- --executions 1000000 --workers 8`.
// Anything thrown that is not a refusal, an input above 5 s, and memory above 1 GiB are defects. They are kept in build/fuzz/.
import { mkdirSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { ROOT } from './corpus.ts';
import { Crew } from './crew.ts';
import { formatJson, formatMarkdown, formatTable } from './report.ts';
import { type Defect, LIMITS, type TargetResult } from './result.ts';
import { TARGETS, type Target, targetOf } from './targets.ts';

const HELP = `Usage: npm run fuzz -- [options]

  --executions N    inputs to read, over all targets (default: no limit)
  --seconds N       time for all targets together (default: 30, or no limit with --executions)
  --targets A,B     some targets only: ${TARGETS.map(({ name }) => name).join(', ')}
  --seed N          the seed of all inputs (default: 1)
  --workers N       processes (default: all cores)
  --output FILE     write the results as JSON, or as Markdown if FILE ends in .md
  --keep FOLDER     where inputs that show a defect are kept (default: build/fuzz)
  --slow MS         an input that takes longer is a defect (default: ${LIMITS.slowMs})
  --memory MIB      a process that takes more is a defect (default: ${LIMITS.mostMemory / 2 ** 20})
  --input T:S:N     read only input N of seed S of target T in this process, keep it, and say how it went
`;

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      executions: { type: 'string' },
      seconds: { type: 'string' },
      targets: { type: 'string' },
      seed: { type: 'string', default: '1' },
      workers: { type: 'string', default: String(availableParallelism()) },
      output: { type: 'string' },
      keep: { type: 'string', default: fileURLToPath(new URL('build/fuzz', ROOT)) },
      slow: { type: 'string', default: String(LIMITS.slowMs) },
      memory: { type: 'string', default: String(LIMITS.mostMemory / 2 ** 20) },
      input: { type: 'string' },
      help: { type: 'boolean' },
    },
  });
  if (values.help) {
    process.stdout.write(HELP);
    return;
  }
  if (values.input !== undefined) {
    await readOne(values.input, values.keep);
    return;
  }
  const seed = Number(values.seed);
  const targets = values.targets === undefined ? TARGETS : values.targets.split(',').map(targetOf);
  const executions = values.executions === undefined ? undefined : Number(values.executions);
  const seconds = values.seconds === undefined ? (executions === undefined ? 30 : Number.POSITIVE_INFINITY) : Number(values.seconds);
  const shares = sharesOf(targets, executions);
  const results: TargetResult[] = [];
  const end = performance.now() + seconds * 1000;
  for (const [index, target] of targets.entries()) {
    // What earlier targets left of their time goes to the later ones.
    const slice = (end - performance.now()) / (targets.length - index);
    const crew = new Crew(target, {
      seed,
      workers: Number(values.workers),
      executions: shares[index]!,
      deadline: performance.now() + slice,
      limits: { slowMs: Number(values.slow), mostMemory: Number(values.memory) * 2 ** 20 },
    });
    const result = await crew.run();
    results.push(result);
    process.stderr.write(`${target.name}: ${result.executions} in ${result.seconds.toFixed(1)} s, ${result.defects.length} defects\n`);
    for (const defect of result.defects) keep(defect, values.keep);
  }
  process.stdout.write(formatTable(results));
  if (values.output !== undefined) {
    const command = `node build/test/fuzz/main.js ${process.argv.slice(2).join(' ')}`;
    writeFileSync(values.output, values.output.endsWith('.md') ? formatMarkdown(results, command) : formatJson(results, command));
  }
  if (results.some(({ defects }) => defects.length > 0)) process.exitCode = 1;
}

/** Executions of each target, by weight. Together they are exactly as many as asked for. */
function sharesOf(targets: readonly Target[], executions: number | undefined): number[] {
  if (executions === undefined) return targets.map(() => Number.POSITIVE_INFINITY);
  const weights = targets.reduce((sum, { weight }) => sum + weight, 0);
  const shares = targets.map(({ weight }) => Math.floor((executions * weight) / weights));
  shares[0]! += executions - shares.reduce((sum, share) => sum + share, 0);
  return shares;
}

function keep({ target, seed, number, what }: Defect, folder: string): void {
  mkdirSync(folder, { recursive: true });
  const path = `${folder}/${target}-seed${seed}-${number}`;
  writeFileSync(`${path}.bin`, targetOf(target).input(seed, number));
  writeFileSync(`${path}.txt`, `${what}\n`);
  process.stderr.write(`DEFECT of ${target}, input ${target}:${seed}:${number}, kept as ${path}.bin:\n${what}\n\n`);
}

async function readOne(name: string, folder: string): Promise<void> {
  const [targetName = '', seed, number] = name.split(':');
  const target = targetOf(targetName);
  const bytes = target.input(Number(seed), Number(number));
  mkdirSync(folder, { recursive: true });
  const path = `${folder}/${targetName}-seed${seed}-${number}.bin`;
  writeFileSync(path, bytes);
  process.stderr.write(`${bytes.length} bytes, kept as ${path}\n`);
  const began = performance.now();
  try {
    await target.read(bytes);
    console.log('read');
  } catch (error) {
    if (!target.isRefusal(error)) throw error;
    console.log(`refused: ${(error as Error).message}`);
  } finally {
    process.stderr.write(`${Math.round(performance.now() - began)} ms, ${Math.round(process.resourceUsage().maxRSS / 1024)} MiB\n`);
  }
}

await main();

// The results of a fuzz run as a table for people, as Markdown and as JSON.
import { cpus } from 'node:os';
import type { TargetResult } from './result.ts';

const COLUMNS = ['target', 'executions', 'per second', 'read', 'refused', 'reasons', 'slowest', 'peak memory', 'defects'];

/** The most frequent reasons are enough for a file of results. */
const MOST_REASONS = 20;

function rowsOf(results: readonly TargetResult[]): string[][] {
  const rows = results.map((result) => [
    result.target,
    number(result.executions),
    number(result.executions / Math.max(result.seconds, 1e-3)),
    number(result.read),
    number(result.refused),
    number(result.refusals.length),
    `${Math.ceil(result.slowestMs)} ms`,
    `${Math.ceil(result.peakMemory / 2 ** 20)} MiB`,
    number(result.defects.length),
  ]);
  const sum = (value: (result: TargetResult) => number) => results.reduce((total, result) => total + value(result), 0);
  const most = (value: (result: TargetResult) => number) => results.reduce((largest, result) => Math.max(largest, value(result)), 0);
  const executions = sum((result) => result.executions);
  const seconds = sum((result) => result.seconds);
  return [
    ...rows,
    [
      'total',
      number(executions),
      number(executions / Math.max(seconds, 1e-3)),
      number(sum((result) => result.read)),
      number(sum((result) => result.refused)),
      number(sum((result) => result.refusals.length)),
      `${Math.ceil(most((result) => result.slowestMs))} ms`,
      `${Math.ceil(most((result) => result.peakMemory) / 2 ** 20)} MiB`,
      number(sum((result) => result.defects.length)),
    ],
  ];
}

function number(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

export function formatTable(results: readonly TargetResult[]): string {
  const rows = [COLUMNS, ...rowsOf(results)];
  const widths = COLUMNS.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const line = (row: readonly string[]) =>
    row.map((cell, column) => (column === 0 ? cell.padEnd(widths[0]!) : cell.padStart(widths[column]!))).join('  ');
  return `${rows.map(line).join('\n')}\n`;
}

export function formatMarkdown(results: readonly TargetResult[], command: string): string {
  const line = (row: readonly string[]) => `| ${row.join(' | ')} |`;
  const machine = `Node ${process.versions.node}, ${results[0]?.workers ?? 0} processes on ${cpus()[0]?.model ?? 'an unknown CPU'}.`;
  const reads = results.map(({ target, reads }) => `- ${target}: ${reads}.`);
  return [
    '# Fuzzing the readers',
    '',
    `\`${command}\``,
    '',
    machine,
    'Refused: an error that says what is wrong with the file. Reasons: how many different ones there were.',
    'Peak memory: the most that any process had. Defects: crashes, inputs above 5 s, processes above 1 GiB.',
    '',
    line(COLUMNS),
    line(COLUMNS.map((_, column) => (column === 0 ? '---' : '---:'))),
    ...rowsOf(results).map(line),
    '',
    ...reads,
    '',
  ].join('\n');
}

export function formatJson(results: readonly TargetResult[], command: string): string {
  const executions = results.reduce((sum, result) => sum + result.executions, 0);
  const targets = results.map((result) => ({
    ...result,
    reasons: result.refusals.length,
    refusals: result.refusals.slice(0, MOST_REASONS),
  }));
  const facts = { command, node: process.versions.node, cpu: cpus()[0]?.model ?? '', executions, targets };
  return `${JSON.stringify(facts, undefined, 1)}\n`;
}

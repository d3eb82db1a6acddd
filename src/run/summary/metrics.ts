// Live figures of a run in Prometheus' text format, one line per process and GPU.
import { createServer, type Server } from 'node:http';
import type { GaugeName } from '../../abi/ring.ts';
import { otherParts } from '../../trace/other-memory.ts';
import type { HostMemory, OtherMemory } from '../../trace/trace.ts';
import { RunError } from '../child/run-error.ts';
import { type Level, levelsOf } from '../rings/levels.ts';
import type { ProcessRecording } from '../rings/process-recording.ts';

interface Metric {
  readonly name: string;
  readonly type: 'gauge' | 'counter';
  readonly help: string;
  of(level: Level): number;
}

const gauge = (name: string, field: GaugeName, help: string): Metric => ({ name, type: 'gauge', help, of: ({ gauges }) => gauges[field] });
const counter = (name: string, field: GaugeName, help: string): Metric => ({
  name,
  type: 'counter',
  help,
  of: ({ gauges }) => gauges[field],
});

const METRICS: readonly Metric[] = [
  gauge('weir_live_bytes', 'live', 'Live requests, each rounded up to 512 bytes.'),
  gauge('weir_live_bytes_peak', 'peak_live', 'Peak of weir_live_bytes.'),
  gauge('weir_allocated_bytes', 'allocated', 'Allocated blocks, rounding included.'),
  gauge('weir_allocated_bytes_peak', 'peak_allocated', 'Peak of weir_allocated_bytes.'),
  gauge('weir_reserved_bytes', 'reserved', 'Memory held from the GPU, private pools included.'),
  gauge('weir_reserved_bytes_peak', 'peak_reserved', 'Peak of weir_reserved_bytes.'),
  gauge('weir_outside_bytes', 'outside', "Part of weir_reserved_bytes that PyTorch's own allocator holds for private pools."),
  gauge('weir_limit_bytes', 'limit', 'Memory limit of the process; 0: none.'),
  gauge('weir_device_bytes', 'total', 'Memory of the GPU.'),
  counter('weir_allocations_total', 'allocations', 'Requests served.'),
  counter('weir_frees_total', 'frees', 'Allocations freed.'),
  counter('weir_ooms_total', 'ooms', 'Requests that failed.'),
  counter('weir_retries_total', 'retries', 'Requests served only after cached memory was freed.'),
  counter('weir_driver_calls_total', 'driver_calls', "Calls of the driver's memory functions."),
  {
    ...counter('weir_driver_seconds_total', 'driver_ns', "Time inside the driver's memory functions."),
    of: ({ gauges }) => gauges.driver_ns / 1e9,
  },
  counter('weir_driver_failures_total', 'driver_failures', 'Calls that the driver refused.'),
  counter('weir_stream_waits_total', 'waits', 'Waits of a stream for borrowed memory.'),
  counter('weir_borrows_total', 'borrows', 'Requests served with memory of another stream.'),
  counter('weir_stitches_total', 'stitches', 'Blocks stitched together from several pieces.'),
  counter('weir_plans_total', 'plans', 'Plans that the process has installed.'),
  counter('weir_planned_hits_total', 'planned_hits', 'Requests served from a plan.'),
  counter('weir_planned_misses_total', 'planned_misses', 'Requests that a plan in use did not serve.'),
  counter('weir_swapped_out_bytes_total', 'swapped_out', 'Bytes swapped out to host memory.'),
  counter('weir_swapped_in_bytes_total', 'swapped_in', 'Bytes swapped in.'),
];

/** Figures of a process, not of one GPU. */
const PROCESS_METRICS: readonly { name: string; type: Metric['type']; help: string; of(process: ProcessRecording): number }[] = [
  { name: 'weir_events_total', type: 'counter', help: 'Events recorded.', of: ({ events }) => events },
  { name: 'weir_dropped_events_total', type: 'counter', help: 'Events lost because they came too fast.', of: ({ dropped }) => dropped },
  { name: 'weir_process_running', type: 'gauge', help: '1 until the process ends.', of: (p) => (p.isFinished ? 0 : 1) },
];

/** What the gauges of a process do not say. Figures that are not known are left out. */
export interface OtherFigures {
  otherMemory(process: ProcessRecording, gpu: number): OtherMemory | undefined;
  pinned(process: ProcessRecording): HostMemory | undefined;
}

const OTHER_METRICS: readonly { name: string; help: string; of(other: OtherMemory): number | undefined }[] = [
  {
    name: 'weir_device_used_bytes',
    help: 'Memory of the GPU in use by anyone.',
    of: ({ used }) => used,
  },
  {
    name: 'weir_other_bytes',
    help: "Memory of the GPU in use that is not PyTorch's of this process: contexts, NCCL, libraries, other processes.",
    of: (other) => otherParts(other).total,
  },
  {
    name: 'weir_context_bytes',
    help: "Part of weir_other_bytes that is this process's own: CUDA context, NCCL, libraries.",
    of: (other) => otherParts(other).own,
  },
];

const PINNED_METRICS: readonly { name: string; help: string; of(host: HostMemory): number | undefined }[] = [
  { name: 'weir_pinned_bytes', help: 'Pinned host memory held, in use or cached.', of: ({ heldAtEnd }) => heldAtEnd },
  { name: 'weir_pinned_used_bytes', help: 'Pinned host memory in use.', of: ({ usedAtEnd }) => usedAtEnd },
  {
    name: 'weir_pinned_rounding_bytes',
    help: 'Part of weir_pinned_used_bytes beyond the tensors, because blocks are rounded up to powers of two.',
    of: ({ roundingAtEnd }) => roundingAtEnd,
  },
];

function formatMetrics(processes: readonly ProcessRecording[], figures: OtherFigures): string {
  const lines: string[] = [];
  const head = (name: string, type: string, help: string) => lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
  const levels = levelsOf(processes);
  for (const metric of METRICS) {
    head(metric.name, metric.type, metric.help);
    for (const level of levels) lines.push(`${metric.name}{${labels(level.process)},device="${level.gpu}"} ${metric.of(level)}`);
  }
  for (const metric of OTHER_METRICS) {
    head(metric.name, 'gauge', metric.help);
    for (const { process, gpu } of levels) {
      const other = figures.otherMemory(process, gpu);
      const value = other && metric.of(other);
      if (value !== undefined) lines.push(`${metric.name}{${labels(process)},device="${gpu}"} ${value}`);
    }
  }
  for (const metric of PINNED_METRICS) {
    head(metric.name, 'gauge', metric.help);
    for (const process of processes) {
      const host = figures.pinned(process);
      const value = host && metric.of(host);
      if (value !== undefined) lines.push(`${metric.name}{${labels(process)}} ${value}`);
    }
  }
  for (const metric of PROCESS_METRICS) {
    head(metric.name, metric.type, metric.help);
    for (const process of processes) lines.push(`${metric.name}{${labels(process)}} ${metric.of(process)}`);
  }
  return `${lines.join('\n')}\n`;
}

function labels({ owner }: ProcessRecording): string {
  return `rank="${owner.rank >= 0 ? owner.rank : ''}",pid="${owner.pid}",allocator="${owner.allocator.replace(/["\\]/g, '_')}"`;
}

export async function serveMetrics(
  port: number,
  host: string,
  processes: readonly ProcessRecording[],
  figures: OtherFigures,
): Promise<Server> {
  const server = createServer((request, response) => {
    const path = (request.url ?? '').split('?')[0];
    if (request.method !== 'GET' && request.method !== 'HEAD') response.writeHead(405).end();
    else if (path !== '/metrics' && path !== '/') response.writeHead(404).end('the figures are at /metrics\n');
    else response.writeHead(200, { 'Content-Type': 'text/plain; version=0.0.4; charset=utf-8' }).end(formatMetrics(processes, figures));
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(listenError(error, port, host)));
    server.listen(port, host, resolve);
  });
  // A connected scraper must not keep this process alive.
  server.unref();
  return server;
}

export function metricsUrl(host: string, port: number): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}/metrics`;
}

export function listenError({ code, message }: NodeJS.ErrnoException, port: number, host: string): RunError {
  if (code === 'EADDRINUSE') return new RunError(`port ${port} on ${host} is taken; choose another one, or 0 for a free one`);
  if (code === 'EACCES') return new RunError(`port ${port} needs root; choose one above 1023`);
  return new RunError(`cannot listen on ${host}, port ${port}: ${message}`);
}

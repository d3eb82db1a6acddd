// The live figures of a run in Prometheus' text format, one line per process and GPU.
import { createServer, type Server } from 'node:http';
import type { GaugeName } from '../../abi/ring.ts';
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
  gauge('weir_live_bytes', 'live', 'Requests that are allocated and not freed, each rounded up to 512 bytes.'),
  gauge('weir_live_bytes_peak', 'peak_live', 'The most weir_live_bytes has been.'),
  gauge('weir_allocated_bytes', 'allocated', 'Blocks given out, rounding included.'),
  gauge('weir_allocated_bytes_peak', 'peak_allocated', 'The most weir_allocated_bytes has been.'),
  gauge('weir_reserved_bytes', 'reserved', 'Memory held from the GPU, private pools included.'),
  gauge('weir_reserved_bytes_peak', 'peak_reserved', 'The most weir_reserved_bytes has been.'),
  gauge('weir_outside_bytes', 'outside', "Of weir_reserved_bytes, held by PyTorch's own allocator for private pools."),
  gauge('weir_limit_bytes', 'limit', 'What the process may hold; 0 for no limit.'),
  gauge('weir_device_bytes', 'total', 'Memory of the GPU.'),
  counter('weir_allocations_total', 'allocations', 'Requests served.'),
  counter('weir_frees_total', 'frees', 'Allocations freed.'),
  counter('weir_ooms_total', 'ooms', 'Requests that failed.'),
  counter('weir_retries_total', 'retries', 'Requests served only after cached memory had been given back.'),
  counter('weir_driver_calls_total', 'driver_calls', "Calls of the driver's memory functions."),
  {
    ...counter('weir_driver_seconds_total', 'driver_ns', "Time inside the driver's memory functions."),
    of: ({ gauges }) => gauges.driver_ns / 1e9,
  },
  counter('weir_driver_failures_total', 'driver_failures', 'Calls that the driver refused.'),
  counter('weir_stream_waits_total', 'waits', 'Waits of a stream for memory lent to it.'),
  counter('weir_borrows_total', 'borrows', 'Requests served with memory of another stream.'),
  counter('weir_stitches_total', 'stitches', 'Blocks made of pieces that lay apart.'),
  counter('weir_plans_total', 'plans', 'Plans that the process has taken.'),
  counter('weir_planned_hits_total', 'planned_hits', 'Requests served from a plan.'),
  counter('weir_planned_misses_total', 'planned_misses', 'Requests that a plan in use did not serve.'),
  counter('weir_swapped_out_bytes_total', 'swapped_out', 'Bytes copied to the host.'),
  counter('weir_swapped_in_bytes_total', 'swapped_in', 'Bytes copied back.'),
];

/** About a process, not about one of its GPUs. */
const PROCESS_METRICS: readonly { name: string; type: Metric['type']; help: string; of(process: ProcessRecording): number }[] = [
  { name: 'weir_events_total', type: 'counter', help: 'Events recorded.', of: ({ events }) => events },
  { name: 'weir_dropped_events_total', type: 'counter', help: 'Events lost: they came too fast.', of: ({ dropped }) => dropped },
  { name: 'weir_process_running', type: 'gauge', help: '1 until the process closes its recording.', of: (p) => (p.isFinished ? 0 : 1) },
];

export function formatMetrics(processes: readonly ProcessRecording[]): string {
  const lines: string[] = [];
  const head = (name: string, type: string, help: string) => lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
  const levels = levelsOf(processes);
  for (const metric of METRICS) {
    head(metric.name, metric.type, metric.help);
    for (const level of levels) lines.push(`${metric.name}{${labels(level.process)},device="${level.gpu}"} ${metric.of(level)}`);
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

export async function serveMetrics(port: number, host: string, processes: readonly ProcessRecording[]): Promise<Server> {
  const server = createServer((request, response) => {
    const path = (request.url ?? '').split('?')[0];
    if (request.method !== 'GET' && request.method !== 'HEAD') response.writeHead(405).end();
    else if (path !== '/metrics' && path !== '/') response.writeHead(404).end('the figures are at /metrics\n');
    else response.writeHead(200, { 'Content-Type': 'text/plain; version=0.0.4; charset=utf-8' }).end(formatMetrics(processes));
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(listenError(error, port, host)));
    server.listen(port, host, resolve);
  });
  // A scraper that stays connected must not keep us from ending.
  server.unref();
  return server;
}

export function listenError({ code, message }: NodeJS.ErrnoException, port: number, host: string): RunError {
  if (code === 'EADDRINUSE') return new RunError(`port ${port} on ${host} is taken; choose another, or 0 for a free one`);
  if (code === 'EACCES') return new RunError(`port ${port} needs more rights; choose one above 1023`);
  return new RunError(`nothing can listen on ${host}, port ${port}: ${message}`);
}

// Worker thread that reads the files about failures and explains them: first what was live, which is quick, then what else would have done.
import { parentPort, workerData } from 'node:worker_threads';
import { InputError } from '../../base/errors.ts';
import { describeFailure, type FailureFacts, withSetting } from '../../report/failure.ts';
import type { Trace } from '../../trace/trace.ts';
import { readWeir } from '../../trace/weir/reader.ts';
import type { FailureMessage, FailureTask } from './failure-task.ts';

function tell(message: FailureMessage): void {
  parentPort?.postMessage(message);
}

function guarded(task: number, work: () => void): void {
  try {
    work();
  } catch (error) {
    if (!(error instanceof InputError || error instanceof RangeError)) throw error;
    tell({ task, problem: error.message });
  }
}

const later: { task: number; trace: Trace; facts: FailureFacts }[] = [];
for (const [task, { bytes, gpu, replays }] of (workerData as readonly FailureTask[]).entries())
  guarded(task, () => {
    const trace = readWeir(bytes).traces.find(({ device }) => device === gpu);
    const facts = trace && describeFailure(trace);
    if (!facts) return tell({ task, problem: 'the request that failed is missing' });
    tell({ task, facts });
    if (replays) later.push({ task, trace, facts });
  });
for (const { task, trace, facts } of later) guarded(task, () => tell({ task, facts: withSetting(facts, trace) }));
tell('done');

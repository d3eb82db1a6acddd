// Worker thread that reads the file about a failure and explains it.
import { parentPort, workerData } from 'node:worker_threads';
import { InputError } from '../../base/errors.ts';
import { explainFailure } from '../../report/failure.ts';
import { readWeir } from '../../trace/weir/reader.ts';
import type { FailureMessage, FailureTask } from './failure-task.ts';

function tell(message: FailureMessage): void {
  parentPort?.postMessage(message);
}

try {
  const { bytes, gpu } = workerData as FailureTask;
  const trace = readWeir(bytes).traces.find(({ device }) => device === gpu);
  const facts = trace && explainFailure(trace);
  tell(facts ? { facts } : { problem: 'the request that failed is missing' });
} catch (error) {
  if (!(error instanceof InputError || error instanceof RangeError)) throw error;
  tell({ problem: error.message });
}

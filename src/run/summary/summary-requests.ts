// Processes that ask for the summary up to now: DIR/<pid>.summary-request.json in, DIR/<pid>.summary.json out.
// Everything is answered, so that nobody waits for ever.
import { readFileSync, renameSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { EXCHANGE_FILES, type SummaryAnswer, type SummaryRequest } from '../../abi/exchange.ts';
import { Format } from '../../abi/formats.ts';
import { readShape } from '../../base/shape.ts';
import type { RunSummary } from './summary.ts';
import { summaryJson } from './summary-json.ts';
import { formatSummary } from './summary-text.ts';

export interface RequestHandlers {
  summaryOf(whatIf: boolean): Promise<RunSummary>;
  /** A process is about to end and wants its summary printed. It waits for that. */
  onFarewell(summary: RunSummary): void;
}

export class SummaryRequests {
  private readonly folder: string;
  private readonly handlers: RequestHandlers;
  /** Ids of requests that are being answered. */
  private readonly known = new Set<string>();

  constructor(folder: string, handlers: RequestHandlers) {
    this.folder = folder;
    this.handlers = handlers;
  }

  /** A file is in the folder. If it is a request, the answer follows. */
  see(name: string): void {
    if (!name.endsWith(EXCHANGE_FILES.SummaryRequest)) return;
    const path = join(this.folder, name);
    let request: SummaryRequest;
    try {
      request = readShape('SummaryRequest', JSON.parse(readFileSync(path, 'utf8')));
    } catch {
      // Requests are renamed into place, so this one will not become whole.
      remove(path);
      return;
    }
    remove(path);
    if (this.known.has(request.id)) return;
    this.known.add(request.id);
    // After this look: an answer looks, too.
    setImmediate(() => void this.answer(request, path.slice(0, -EXCHANGE_FILES.SummaryRequest.length)));
  }

  private async answer(request: SummaryRequest, prefix: string): Promise<void> {
    let text = '';
    let json = '{}';
    try {
      const summary = await this.handlers.summaryOf(request.whatIf);
      if (request.say) this.handlers.onFarewell(summary);
      const lines = formatSummary(summary);
      text = lines.length > 0 ? lines.join('\n') : 'no process has used a GPU yet, so there is nothing to report';
      json = JSON.stringify(summaryJson(summary));
    } catch (error) {
      text = `there is no summary: ${error instanceof Error ? error.message : String(error)}`;
    }
    const answer: SummaryAnswer = { version: Format.exchange.version, id: request.id, text, json };
    const path = `${prefix}${EXCHANGE_FILES.SummaryAnswer}`;
    try {
      writeFileSync(`${path}.new`, JSON.stringify(answer), { mode: 0o600 });
      renameSync(`${path}.new`, path);
    } catch {
      // The folder is gone: the job has ended.
    }
  }
}

function remove(path: string): void {
  try {
    unlinkSync(path);
  } catch {}
}

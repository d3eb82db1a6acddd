// The loop of a worker: one question at a time, and no more work on those that were cancelled.
import { describe, expect, it } from 'vitest';
import { InputError } from '../../src/base/errors.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { Answering, type Asked, type Cancelled, type Poll, type Told } from '../../src/view/answering.ts';
import type { Question } from '../../src/view/protocol.ts';
import { readSample } from '../support/samples.ts';

const NAME = 'vgg16-b100.native.pickle.gz';
const recording = readRecording(readSample(NAME));
const WAIT = { timeout: 20_000 };
const describeIt: Question = { method: 'describe', gpu: 0 };
const analyze: Question = { method: 'analyze', gpu: 0 };

function worker(poll?: Poll) {
  const told: Told[] = [];
  let loads = 0;
  const onTold: ((each: Told) => void)[] = [];
  const answering = new Answering(
    NAME,
    async () => {
      loads++;
      return recording;
    },
    (each) => {
      told.push(each);
      for (const listener of onTold) listener(each);
    },
    poll,
  );
  const ended = (id: number) => told.find((each) => each.id === id && !('progress' in each));
  return { answering, told, onTold, ended, loads: () => loads };
}

describe('a worker', () => {
  it('refuses a question that asks for too much, and answers the next', async () => {
    const { answering, ended } = worker();
    const question = { method: 'timeline', gpu: 0, run: 'recorded', axis: 'event', from: 0, to: 10, columns: 1e9 } as const;
    answering.receive({ id: 1, question });
    answering.receive({ id: 2, question: describeIt });
    await expect.poll(() => ended(2), WAIT).toHaveProperty('answer');
    expect(ended(1)).toEqual({ id: 1, problem: 'columns is a whole number from 1 to 16384, not 1000000000' });
  });

  it('stops between two steps of a question that is cancelled, and begins the next', async () => {
    const { answering, told, onTold, ended, loads } = worker();
    answering.receive({ id: 1, question: analyze });
    answering.receive({ id: 2, question: describeIt });
    // The message comes when the verdict is there, before any allocator was tried.
    let isCancelled = false;
    onTold.push((each) => {
      if (isCancelled || !('progress' in each) || !each.progress.partial) return;
      isCancelled = true;
      setTimeout(() => answering.receive({ cancel: 1 }), 0);
    });
    await expect.poll(() => ended(2), WAIT).toHaveProperty('answer');
    expect(ended(1)).toBeUndefined();
    const rows = told.map((each) => ('progress' in each ? (each.progress.partial?.analysis.whatIf.length ?? 0) : 0));
    expect(Math.max(...rows)).toBeLessThanOrEqual(1);
    expect(loads()).toBe(1);
  });

  it('stops within a step where it can poll', async () => {
    const messages: (Asked | Cancelled)[] = [];
    const { answering, told, onTold, ended } = worker(() => messages.shift());
    answering.receive({ id: 1, question: analyze });
    // The first note comes from the loop of the first replay.
    onTold.push((each) => {
      if (each.id === 1 && messages.length === 0) messages.push({ cancel: 1 }, { id: 2, question: describeIt });
    });
    await expect.poll(() => ended(2), WAIT).toHaveProperty('answer');
    expect(told.filter((each) => each.id === 1)).toHaveLength(1);
    expect(told[0]).toMatchObject({ id: 1, progress: { doing: 'replaying as recorded' } });
  });

  it('never begins a question that was cancelled while it waited', async () => {
    const { answering, told, ended } = worker();
    answering.receive({ id: 1, question: describeIt });
    answering.receive({ id: 2, question: analyze });
    answering.receive({ id: 3, question: describeIt });
    answering.receive({ cancel: 2 });
    await expect.poll(() => ended(3), WAIT).toHaveProperty('answer');
    expect(told.map(({ id }) => id)).toEqual([1, 3]);
  });

  it('goes on reading the recording when the question that began it is cancelled', async () => {
    const { answering, told, loads } = worker();
    answering.receive({ id: 1, question: describeIt });
    answering.receive({ cancel: 1 });
    answering.receive({ id: 2, question: describeIt });
    await expect.poll(() => told.length, WAIT).toBe(1);
    expect(told[0]).toMatchObject({ id: 2, answer: { name: NAME } });
    expect(loads()).toBe(1);
  });

  it('reads the recording before anybody asks, and tells who asks meanwhile how far it is', async () => {
    const messages: (Asked | Cancelled)[] = [];
    const told: Told[] = [];
    let loads = 0;
    const answering = new Answering(
      NAME,
      async (onProgress) => {
        loads++;
        onProgress(0.1, 'reading');
        // The reader keeps the thread busy, so the question is seen only by polling.
        messages.push({ id: 1, question: describeIt });
        onProgress(0.2, 'reading');
        return recording;
      },
      (each) => told.push(each),
      () => messages.shift(),
    );
    await answering.open();
    await expect.poll(() => told.length, WAIT).toBe(2);
    expect(told[0]).toEqual({ id: 1, progress: { fraction: 0.2, doing: 'reading' } });
    expect(told[1]).toMatchObject({ id: 1, answer: { name: NAME } });
    expect(loads).toBe(1);
  });

  it('tells everyone who asks why the recording could not be read', async () => {
    const told: Told[] = [];
    const answering = new Answering(
      NAME,
      () => Promise.reject(new InputError('it is damaged')),
      (each) => told.push(each),
    );
    await expect(answering.open()).rejects.toThrow('it is damaged');
    answering.receive({ id: 1, question: describeIt });
    answering.receive({ id: 2, question: describeIt });
    await expect.poll(() => told, WAIT).toEqual([1, 2].map((id) => ({ id, problem: 'it is damaged' })));
  });

  it('ignores the cancelling of questions that were answered', async () => {
    const { answering, ended } = worker();
    answering.receive({ id: 1, question: describeIt });
    await expect.poll(() => ended(1), WAIT).toHaveProperty('answer');
    answering.receive({ cancel: 1 });
    answering.receive({ id: 2, question: describeIt });
    await expect.poll(() => ended(2), WAIT).toHaveProperty('answer');
  });
});

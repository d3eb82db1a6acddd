// Worker threads whose work is done.

/** What is needed of a `Worker` of node:worker_threads, which this layer does not know. */
interface Thread {
  removeAllListeners(): unknown;
  on(event: 'error', listener: () => void): unknown;
  unref(): void;
  terminate(): Promise<number>;
}

/**
 * Ends a thread that nobody needs any more, and does not wait for it: Node's threads can hang as they end, while their
 * compiler asks for a garbage collection that no longer comes (nodejs/node#54918).
 */
export function dismiss(thread: Thread): void {
  thread.removeAllListeners();
  thread.on('error', () => {});
  thread.unref();
  void thread.terminate();
}

// Ends worker threads that are no longer needed.

/** The methods needed of a `Worker` of node:worker_threads, which this layer may not import. */
interface Thread {
  removeAllListeners(): unknown;
  on(event: 'error', listener: () => void): unknown;
  unref(): void;
  terminate(): Promise<number>;
}

/**
 * Ends a thread without waiting for it. Node's threads can hang at their end, while their compiler waits for a garbage
 * collection that never comes (nodejs/node#54918).
 */
export function dismiss(thread: Thread): void {
  thread.removeAllListeners();
  thread.on('error', () => {});
  thread.unref();
  void thread.terminate();
}

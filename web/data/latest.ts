// For questions of which only the newest matters: `latest` for quick ones, `newest` for slow ones.

/** Asks one question at a time. Of the questions that come meanwhile only the last is kept, as dragging needs. */
export function latest<Ask>(ask: (what: Ask) => Promise<void>): (what: Ask) => void {
  let isAsking = false;
  let next: { what: Ask } | undefined;
  const run = async (what: Ask): Promise<void> => {
    isAsking = true;
    try {
      await ask(what);
    } finally {
      isAsking = false;
      const waiting = next;
      next = undefined;
      if (waiting) void run(waiting.what);
    }
  };
  return (what) => {
    if (isAsking) next = { what };
    else void run(what);
  };
}

/** Makes a signal for each question. It tells the question before to stop. */
export function newest(): () => AbortSignal {
  let controller: AbortController | undefined;
  return () => {
    controller?.abort();
    controller = new AbortController();
    return controller.signal;
  };
}

// The page without a recording: a place to drop a file, an example, and how to make a snapshot.
import { DUMP_SNAPSHOT, START_RECORDING } from '../../src/report/words/shell.ts';
import { CopyLine } from '../panels/copy-line.tsx';
import { hasExample, openExample, pickFile } from './files.ts';
import { Progress } from './progress.tsx';
import { loading } from './state.ts';

export function Empty() {
  if (loading.value) {
    return (
      <main class="empty">
        <div class="card opening">
          <h1>Opening</h1>
          <Progress note={loading.value} />
        </div>
      </main>
    );
  }
  return (
    <main class="empty">
      <div class="drop-zone">
        <h1>Drop a memory snapshot here</h1>
        <p>A PyTorch snapshot (pickle or JSON) or a .weir recording, plain, gzip or zstd. Nothing leaves your computer.</p>
        <p class="buttons">
          <button type="button" class="primary" onClick={() => pickFile()}>
            Choose a file
          </button>
          {hasExample() && (
            <button type="button" onClick={() => void openExample()}>
              Show the example
            </button>
          )}
        </p>
      </div>
      <div class="card">
        <h2>Make a snapshot</h2>
        <p>At the start of the program, before the model is built:</p>
        <CopyLine line={START_RECORDING} />
        <p>
          At the end, or in <code>except torch.OutOfMemoryError:</code>
        </p>
        <CopyLine line={DUMP_SNAPSHOT} />
      </div>
    </main>
  );
}

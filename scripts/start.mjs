// `npm start`: installs, builds and analyzes a sample recording. At a terminal it also opens the page.
import { build, run } from './setup.mjs';

const SAMPLE = 'samples/gpt2xl-oom.pickle.gz';

build();
console.log(`$ npx weir analyze ${SAMPLE}\n`);
run(process.execPath, 'dist/cli/main.js', 'analyze', SAMPLE);
console.log(`
That was GPT-2 XL training on a GPU cut down to 21 GiB, as PyTorch recorded it until it ran out of memory. Next:
  npx weir analyze YOUR_SNAPSHOT.pickle      your own run (weir --help says how to make a snapshot in three lines)
  npx weir serve YOUR_SNAPSHOT.pickle --open the same as a page
  npx weir replay ${SAMPLE} --allocator pytorch,weir --capacity 24GiB
  npx weir --help
`);
// The page runs until Ctrl-C, so it needs a terminal.
if (process.stdout.isTTY && !process.env.CI) {
  console.log(`$ npx weir serve ${SAMPLE} --open\n`);
  run(process.execPath, 'dist/cli/main.js', 'serve', SAMPLE, '--open');
}

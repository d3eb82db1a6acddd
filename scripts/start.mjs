// `npm start`: installs, builds and shows the main job on a recording that is in the repository.
import { build, run } from './setup.mjs';

const SAMPLE = 'samples/gpt2xl-oom.pickle.gz';

build();
console.log(`$ npx weir analyze ${SAMPLE}\n`);
run(process.execPath, 'dist/cli/main.js', 'analyze', SAMPLE);
console.log(`
That was GPT-2 XL training on a GPU cut down to 21 GiB, as PyTorch recorded it until it ran out of memory. Next:
  npx weir analyze YOUR_SNAPSHOT.pickle      your own run (weir --help says how to make a snapshot in three lines)
  npx weir replay ${SAMPLE} --allocator pytorch,expandable --capacity 24GiB
  npx weir --help`);

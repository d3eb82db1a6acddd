// Builds the page into dist/web: its script and styles, the worker's script, and an example. `npm run build` calls it
// after tsc.
// The two scripts are built apart, because `weir report` embeds each of them in one HTML file.
import { copyFileSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'vite';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const web = join(root, 'web');
const out = join(root, 'dist/web');
mkdirSync(out, { recursive: true });

await bundle('main.tsx', 'app');
await bundle('worker.ts', 'worker');
copyFileSync(join(web, 'index.html'), join(out, 'index.html'));
copyFileSync(join(web, 'icon.svg'), join(out, 'icon.svg'));
copyFileSync(join(root, 'samples/gpt2xl-oom.pickle.gz'), join(out, 'example.pickle.gz'));

async function bundle(entry, name) {
  await build({
    root: web,
    configFile: false,
    logLevel: 'warn',
    define: { 'process.env.NODE_ENV': '"production"' },
    build: {
      outDir: out,
      emptyOutDir: false,
      target: 'es2022',
      cssMinify: true,
      minify: true,
      lib: { entry: join(web, entry), formats: ['iife'], name: 'weirPage', fileName: () => `${name}.js`, cssFileName: name },
    },
  });
}

// Writes the metadata that makes dist/python a Python distribution: its version and the entry point that PyTorch calls.
// Name and version come from package.json.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Writes NAME-VERSION.dist-info into `target`, a folder that may be on PYTHONPATH; `root` is the folder of package.json. */
export function writeDistInfo(root, target) {
  const { name, version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const folder = join(target, `${name.replaceAll('-', '_')}-${version}.dist-info`);
  const files = {
    METADATA: [
      'Metadata-Version: 2.1',
      `Name: ${name}`,
      `Version: ${version}`,
      `Summary: The part of Weir that runs inside PyTorch processes; \`weir run\` puts it there.`,
    ],
    'entry_points.txt': ['[torch.backends]', 'weir = weir_gpu.entry:activate'],
    'top_level.txt': ['weir_gpu'],
  };
  mkdirSync(folder, { recursive: true });
  for (const [file, lines] of Object.entries(files)) writeFileSync(join(folder, file), `${lines.join('\n')}\n`);
}

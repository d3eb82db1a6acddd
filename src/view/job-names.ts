// Names of the recordings of a job: short ones to show, and ones that say nothing about the machine they lie on.

/** The names without the folders that all of them are in. A single one is its file's name. */
export function shortNames(paths: readonly string[]): string[] {
  const parts = paths.map(partsOf);
  const [first = []] = parts;
  let common = 0;
  while (common < first.length - 1 && parts.every((own) => common < own.length - 1 && own[common] === first[common])) common++;
  return parts.map((own) => own.slice(common).join('/'));
}

/** The files' names alone. Of equal ones, later ones get a number. */
export function plainNames(paths: readonly string[]): string[] {
  const taken = new Set<string>();
  return paths.map((path) => {
    const name = fileName(path);
    let unique = name;
    for (let copy = 2; taken.has(unique); copy++) unique = `${name} (${copy})`;
    taken.add(unique);
    return unique;
  });
}

/** The folder that all of them are in, or the single file; undefined: they have no folder in common. */
export function jobName(paths: readonly string[]): string | undefined {
  if (paths.length === 1) return fileName(paths[0]!);
  const folders = new Set(paths.map((path) => partsOf(path).slice(0, -1).join('/')));
  const [folder = ''] = folders;
  return folders.size === 1 && folder !== '' ? folder.split('/').at(-1) : undefined;
}

export function fileName(path: string): string {
  return partsOf(path).at(-1) ?? path;
}

/** Never empty. */
function partsOf(path: string): string[] {
  const parts = path.split(/[\\/]/).filter((part) => part !== '' && part !== '.');
  return parts.length === 0 ? [path] : parts;
}

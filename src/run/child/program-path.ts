// The path of a program by its name, as shells find it.
import { accessSync, constants, statSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';

/** Undefined if there is no such program, or it may not be executed. */
export function findProgram(name: string, environment: NodeJS.ProcessEnv): string | undefined {
  if (name === '') return undefined;
  const paths = name.includes('/') ? [resolve(name)] : (environment['PATH'] ?? '').split(delimiter).map((folder) => join(folder, name));
  return paths.find((path) => {
    try {
      accessSync(path, constants.X_OK);
      return statSync(path).isFile();
    } catch {
      return false;
    }
  });
}

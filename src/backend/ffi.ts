// Loads koffi (FFI) only when a backend with real memory is opened.
// Reading and replaying recordings must not depend on native code.
import { createRequire } from 'node:module';
import type Koffi from 'koffi';
import { InputError } from '../base/errors.ts';

let loaded: typeof Koffi | undefined;

export function loadKoffi(): typeof Koffi {
  if (!loaded) {
    try {
      loaded = createRequire(import.meta.url)('koffi') as typeof Koffi;
    } catch (error) {
      const reason = error instanceof Error ? error.message.split('\n')[0] : String(error);
      throw new InputError(`the koffi package does not load here (${reason}), and real memory needs it; use --backend sim`);
    }
  }
  return loaded;
}

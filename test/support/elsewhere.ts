// Preloaded into a command (`node --import build/test/support/elsewhere.js`): takes away what only Linux has.
// koffi does not load. ELSEWHERE_PLATFORM names another platform. ELSEWHERE_LOG gets a line for each attempt.
import fs from 'node:fs';
import Module, { syncBuiltinESMExports } from 'node:module';
import os from 'node:os';

const { ELSEWHERE_PLATFORM: platform, ELSEWHERE_LOG: log } = process.env;
const { appendFileSync, existsSync } = fs;

const note = (what: string) => {
  if (log) appendFileSync(log, `${what}\n`);
};

const isNative = (name: string) => /^(koffi|@koromix\/)/.test(name);

function refuse(name: string): never {
  note(name);
  throw Object.assign(new Error(`Cannot find package '${name}'`), { code: 'ERR_MODULE_NOT_FOUND' });
}

type Resolve = (this: unknown, name: string, ...rest: unknown[]) => string;
const loader = Module as unknown as { _resolveFilename: Resolve; registerHooks?: (hooks: object) => void };
const resolveFilename = loader._resolveFilename;
loader._resolveFilename = function (name, ...rest) {
  return isNative(name) ? refuse(name) : resolveFilename.call(this, name, ...rest);
};
// Node 20 has no such hooks. There, scripts/layers.mjs alone shows that nothing imports koffi.
loader.registerHooks?.({
  resolve: (name: string, context: unknown, next: (name: string, context: unknown) => unknown) =>
    isNative(name) ? refuse(name) : next(name, context),
});

// In a container, the user may have a number and no name.
os.userInfo = () => {
  throw Object.assign(new Error('A system error occurred: uv_os_get_passwd returned ENOENT'), { code: 'ERR_SYSTEM_ERROR' });
};
syncBuiltinESMExports();

if (platform) {
  Object.defineProperty(process, 'platform', { value: platform });
  const missing = platform === 'win32' ? ['getuid', 'geteuid', 'getgid', 'getegid', 'getgroups'] : [];
  for (const name of missing) Object.defineProperty(process, name, { value: undefined });
  const isGone = (path: unknown) => typeof path === 'string' && /^\/(proc|dev\/shm|sys)(\/|$)/.test(path);
  const functions = fs as unknown as Record<string, (...parameters: unknown[]) => unknown>;
  for (const name of ['openSync', 'readFileSync', 'readdirSync', 'readlinkSync', 'statSync', 'lstatSync', 'accessSync', 'writeFileSync']) {
    const original = functions[name]!;
    functions[name] = (path, ...rest) => {
      if (!isGone(path)) return original(path, ...rest);
      if ((rest[0] as { throwIfNoEntry?: boolean } | undefined)?.throwIfNoEntry === false) return undefined;
      throw Object.assign(new Error(`ENOENT: no such file or directory, ${name} '${String(path)}'`), { code: 'ENOENT', syscall: name });
    };
  }
  functions['existsSync'] = (path) => !isGone(path) && existsSync(path as string);
  syncBuiltinESMExports();
}

// Serves the page until the user interrupts: prints its address, opens a browser if asked to.
import { spawn } from 'node:child_process';
import { hostname, userInfo } from 'node:os';
import { UsageError } from '../base/errors.ts';
import { LOCAL_HOST } from './options.ts';
import type { PageServer } from './page-server.ts';

export interface ServingOptions {
  /** 0 chooses a free one. */
  readonly port: number;
  readonly open?: boolean | undefined;
  readonly quiet?: boolean | undefined;
}

/** The address goes to standard output. The server is closed afterwards. */
export async function serveUntilInterrupted(server: PageServer, options: ServingOptions): Promise<void> {
  try {
    await server.listen(options.port);
  } catch (error) {
    throw listenError(error as NodeJS.ErrnoException, options.port);
  }
  const { port } = server;
  process.stdout.write(`Weir is at ${server.url}\n`);
  if (!options.quiet) {
    process.stderr.write(
      `from another machine: ssh -L ${port}:${LOCAL_HOST}:${port} ${userName()}@${hostname()}, then open the same address\n`,
    );
    process.stderr.write('whoever has this address can open the page\n');
    process.stderr.write('Ctrl-C stops the server\n');
  }
  if (options.open) openBrowser(server);
  await interrupted();
}

/** In a container, the user may have a number and no name. */
function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return process.env['USER'] ?? 'USER';
  }
}

function listenError({ code, message }: NodeJS.ErrnoException, port: number): UsageError {
  if (code === 'EADDRINUSE') return new UsageError(`port ${port} is taken; without -p, weir chooses a free one`);
  return new UsageError(code === 'EACCES' ? `port ${port} needs root; choose one above 1023` : message);
}

/** A machine without a browser is no reason to stop: the address has been printed. */
function openBrowser(server: PageServer): void {
  const url = server.ticketUrl();
  const [command, ...parameters] =
    process.platform === 'darwin' ? ['open', url] : process.platform === 'win32' ? ['cmd', '/c', 'start', '', url] : ['xdg-open', url];
  const child = spawn(command!, parameters, { stdio: 'ignore', detached: true });
  child.on('error', () => process.stderr.write(`found no browser to open; open ${server.url} yourself\n`));
  child.unref();
}

function interrupted(): Promise<void> {
  return new Promise((resolve) => {
    process.once('SIGINT', () => resolve()).once('SIGTERM', () => resolve());
  });
}

// The page on a port of this machine, with a token that other users of the machine do not have.
// `weir serve` and `weir run --serve` both start one.
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import { Access } from '../server/access.ts';
import { type AppOptions, createApp } from '../server/app.ts';
import { readAssets } from '../server/assets.ts';
import { LOCAL_HOST } from './options.ts';

export class PageServer {
  private readonly access = new Access();
  private readonly server: Server;

  constructor(content: Pick<AppOptions, 'sources' | 'job' | 'live'>) {
    const app = createApp({ ...content, assets: readAssets(), access: this.access });
    this.server = createServer(getRequestListener(app.fetch));
  }

  /** Rejects with the system's error if the port cannot be had. */
  async listen(port: number): Promise<void> {
    this.server.listen(port, LOCAL_HOST);
    await once(this.server, 'listening');
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  /** For people: it can be used as long as the server runs. */
  get url(): string {
    return this.urlWith(this.access.token);
  }

  /** For the command line of a browser, which other users can read: it can be used once. */
  ticketUrl(): string {
    return this.urlWith(this.access.issueTicket());
  }

  /** The server alone does not keep the process running. */
  unref(): void {
    this.server.unref();
  }

  /** No new connections; those that are open end after a while. */
  close(afterMs = 0): void {
    this.server.close();
    if (afterMs === 0) this.server.closeAllConnections();
    else setTimeout(() => this.server.closeAllConnections(), afterMs).unref();
  }

  private urlWith(token: string): string {
    return `http://${LOCAL_HOST}:${this.port}/?token=${token}`;
  }
}

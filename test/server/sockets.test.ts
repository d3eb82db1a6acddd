// The server on a real socket: bodies that are too large, and clients that go away.
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { Access } from '../../src/server/access.ts';
import { createApp, MOST_QUESTIONS, type Source } from '../../src/server/app.ts';
import type { Assets } from '../../src/server/assets.ts';

const MIB = 2 ** 20;
const WAIT = { timeout: 10_000 };
const asset = { type: 'text/plain', bytes: new Uint8Array() };
const names = ['index.html', 'app.js', 'app.css', 'worker.js', 'icon.svg', 'example.pickle.gz'];
const assets = Object.fromEntries(names.map((name) => [name, asset])) as Assets;

/** More than the buffers of the system take. */
const LONG_ANSWER = new Uint8Array(16 * MIB);
const access = new Access();
const asked: AbortSignal[] = [];
const endless: Source = {
  name: 'endless',
  ask: (question, signal) => {
    if (question.method === 'plan') return Promise.resolve(LONG_ANSWER);
    asked.push(signal!);
    return new Promise((_resolve, reject) => signal!.addEventListener('abort', () => reject(new Error('cancelled'))));
  },
  progress: () => undefined,
};

let server: Server;
let port: number;

beforeAll(async () => {
  server = createServer(getRequestListener(createApp({ assets, sources: [endless], access }).fetch)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  port = (server.address() as AddressInfo).port;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

function post(...headers: string[]): Socket {
  const socket = connect(port, '127.0.0.1');
  const lines = [
    'POST /api/sources/0/ask HTTP/1.1',
    `Host: 127.0.0.1:${port}`,
    `Authorization: Bearer ${access.token}`,
    'Content-Type: application/json',
    ...headers,
  ];
  socket.write(`${lines.join('\r\n')}\r\n\r\n`);
  return socket;
}

function ask(method: string): Socket {
  const body = `{"method":"${method}","gpu":0}`;
  const socket = post(`Content-Length: ${body.length}`);
  socket.write(body);
  return socket;
}

async function firstBytes(socket: Socket): Promise<string> {
  const [chunk] = (await once(socket, 'data')) as [Buffer];
  return chunk.toString();
}

describe('a body of 300 MB', () => {
  it('is refused before it is sent, by its length', async () => {
    const socket = post(`Content-Length: ${300 * MIB}`);
    expect(await firstBytes(socket)).toMatch(/^HTTP\/1\.1 413 [\s\S]*connection: close/i);
    socket.destroy();
  });

  it('is refused on the way where no length is given', async () => {
    const socket = post('Transfer-Encoding: chunked');
    let answer = '';
    socket.on('data', (chunk: Buffer) => {
      answer += chunk.toString();
    });
    socket.on('error', () => {});
    const chunk = Buffer.concat([Buffer.from('10000\r\n'), Buffer.alloc(65_536, 'x'), Buffer.from('\r\n')]);
    let sent = 0;
    while (answer === '' && sent < 300 * MIB) {
      await new Promise((resolve) => socket.write(chunk, resolve));
      sent += chunk.length;
    }
    expect(answer).toMatch(/^HTTP\/1\.1 413 /);
    // Beyond the limit of 64 KiB there is only what the buffers of the system hold.
    expect(sent).toBeLessThan(64 * MIB);
    socket.destroy();
  });
});

describe('a client that goes away', () => {
  it('in the middle of its question is no defect', async () => {
    const complaints = vi.spyOn(console, 'error');
    const closed = new Promise((resolve) => server.once('connection', (own) => own.once('close', resolve)));
    const socket = post('Content-Length: 100');
    socket.write('{"met', () => setTimeout(() => socket.destroy(), 50));
    await closed;
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(complaints).not.toHaveBeenCalled();
    complaints.mockRestore();
  });

  it('cancels its question', async () => {
    const socket = ask('analyze');
    await expect.poll(() => asked.length, WAIT).toBe(1);
    expect(asked[0]!.aborted).toBe(false);
    socket.destroy();
    await expect.poll(() => asked[0]!.aborted, WAIT).toBe(true);
  });
});

describe('clients that do not read their answers', () => {
  it('count until they go away', async () => {
    const status = async () => {
      const socket = ask('plan');
      const answer = await firstBytes(socket);
      socket.destroy();
      return answer.split(' ')[1];
    };
    const clients = Array.from({ length: MOST_QUESTIONS }, () => ask('plan'));
    // One read shows that the answer has begun; the rest of it is left in the server.
    for (const client of clients) {
      await firstBytes(client);
      client.pause();
    }
    expect(await status()).toBe('503');
    for (const client of clients) client.destroy();
    await expect.poll(status, WAIT).toBe('200');
  });
});

// Who may read the recordings: only those who have the token that weir printed in the terminal.
// Without it, every user of this machine could read them, since 127.0.0.1 is open to all of them.
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Context, Next } from 'hono';
import { getCookie, setCookie } from 'hono/cookie';

export const REFUSAL = 'this page needs a token; open the URL that weir printed in the terminal';

const TOKEN_BYTES = 16;

export class Access {
  /** Valid as long as the server runs. */
  readonly token: string = newToken();
  private ticket: string | undefined;

  /**
   * A token that can be exchanged for a cookie once. It is for the browser that --open starts: other users can read the
   * command line of a browser for as long as it runs.
   */
  issueTicket(): string {
    this.ticket = newToken();
    return this.ticket;
  }

  /** Lets a request pass, or refuses it. The URL with a token leads to the page without one, which gets a cookie. */
  check = async (context: Context, next: Next): Promise<Response | undefined> => {
    const inQuery = context.req.query('token');
    const isExchange = context.req.path === '/' && inQuery !== undefined;
    const cookie = cookieName(context.req.header('host') ?? '');
    const bearer = /^Bearer +(\S+)$/i.exec(context.req.header('authorization') ?? '')?.[1];
    const isAllowed = [inQuery, bearer, getCookie(context, cookie)].some((given) => isSame(given, this.token));
    if (!isAllowed && !(isExchange && this.useTicket(inQuery))) return refuse(context);
    if (!isExchange) {
      await next();
      return undefined;
    }
    setCookie(context, cookie, this.token, { path: '/', httpOnly: true, sameSite: 'Strict' });
    return context.redirect('./', 303);
  };

  private useTicket(given: string): boolean {
    if (!isSame(given, this.ticket)) return false;
    this.ticket = undefined;
    return true;
  }
}

/** Cookies are shared by all ports of a host. The browser's port is used: `ssh -L` may forward servers of several machines. */
function cookieName(host: string): string {
  return `weir-${/:(\d+)$/.exec(host)?.[1] ?? '80'}`;
}

function refuse(context: Context): Response {
  const headers = { 'WWW-Authenticate': 'Bearer realm="weir"' };
  if (context.req.path.startsWith('/api/')) return context.json({ problem: REFUSAL }, 401, headers);
  return context.text(`${REFUSAL}\n`, 401, headers);
}

function newToken(): string {
  return randomBytes(TOKEN_BYTES).toString('hex');
}

/** Takes the same time for every wrong token. */
function isSame(given: string | undefined, expected: string | undefined): boolean {
  return given !== undefined && expected !== undefined && timingSafeEqual(digest(given), digest(expected));
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

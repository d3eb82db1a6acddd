// Who may ask the server: only the page it serves itself. A name that resolves to this machine (DNS rebinding) and a page
// from elsewhere are both refused, and what is served may load nothing from elsewhere.
import type { Context, Next } from 'hono';

/** Any port is fine: `ssh -L` may bring us to another one. */
const OWN_HOSTS = new Set(['127.0.0.1', 'localhost', '[::1]']);

export const CONTENT_POLICY: string = [
  "default-src 'none'",
  // The engine is WebAssembly.
  "script-src 'self' 'wasm-unsafe-eval'",
  "worker-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

export async function guard(context: Context, next: Next): Promise<Response | undefined> {
  const refusal = refusalOf(context.req.raw.headers);
  if (refusal) return context.text(`${refusal}\n`, 403);
  await next();
  const { headers } = context.res;
  headers.set('Content-Security-Policy', CONTENT_POLICY);
  headers.set('X-Content-Type-Options', 'nosniff');
  headers.set('Referrer-Policy', 'no-referrer');
  headers.set('Cross-Origin-Resource-Policy', 'same-origin');
  headers.set('Cache-Control', 'no-store');
  return undefined;
}

/** Why the request is refused; undefined if it is not. */
export function refusalOf(headers: Headers): string | undefined {
  const host = headers.get('host') ?? '';
  if (!OWN_HOSTS.has(host.replace(/:\d+$/, '').toLowerCase())) return `weir answers only as 127.0.0.1 or localhost, not as '${host}'`;
  const origin = headers.get('origin');
  if (origin !== null && origin !== `http://${host}`) return `weir answers only its own page, not one from ${origin}`;
  const site = headers.get('sec-fetch-site');
  if (site !== null && site !== 'same-origin' && site !== 'none') return 'weir answers only its own page';
  return undefined;
}

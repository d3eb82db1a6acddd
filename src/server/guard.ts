// Refuses every request that does not come from the page this server serves.
// That stops pages from elsewhere and DNS rebinding. Served pages may load nothing from elsewhere.
import type { Context, Next } from 'hono';

/** Any port is allowed: `ssh -L` may forward another one. */
const OWN_HOSTS = new Set(['127.0.0.1', 'localhost', '[::1]']);

const CONTENT_POLICY = [
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

/** The reason to refuse the request; undefined if it is allowed. */
export function refusalOf(headers: Headers): string | undefined {
  const host = headers.get('host') ?? '';
  if (!OWN_HOSTS.has(host.replace(/:\d+$/, '').toLowerCase())) return `weir answers only at 127.0.0.1 or localhost, not at '${host}'`;
  const origin = headers.get('origin');
  if (origin !== null && origin !== `http://${host}`) return `weir answers only its own page, not a page of ${origin}`;
  const site = headers.get('sec-fetch-site');
  if (site !== null && site !== 'same-origin' && site !== 'none') return 'weir answers only its own page';
  return undefined;
}

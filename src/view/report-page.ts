// Builds the page as one HTML file that holds its scripts, styles, recordings and their analyses. `weir report` and the page itself use it.
// The file works from a disk without a network, and its content policy forbids any network.
import type { RankSummary } from './job-rank.ts';
import type { PackedAnalysis } from './packing.ts';

/** The parts of the built page. */
export interface PageParts {
  readonly script: string;
  readonly style: string;
  readonly worker: string;
  readonly icon: string;
}

export interface ReportRecording {
  readonly name: string;
  /** A .weir file, compressed with gzip; undefined: the page has only its summary. */
  readonly recording: Uint8Array | undefined;
  /** What is known of each GPU; undefined: not summarised. */
  readonly ranks: readonly RankSummary[] | undefined;
  /** Why the recording could not be read. */
  readonly problem?: string | undefined;
  /** The analyses made so far. */
  readonly analyses: readonly PackedAnalysis[];
}

export interface ReportContent {
  readonly title: string;
  /** The view, as the page's address holds it; empty: the usual one. */
  readonly hash: string;
  readonly recordings: readonly ReportRecording[];
}

/** What the page reads of itself. */
export interface ReportJson {
  readonly hash: string;
  readonly recordings: readonly (Omit<ReportRecording, 'recording'> & { readonly isKept: boolean })[];
}

export async function reportPage(parts: PageParts, { title, hash, recordings }: ReportContent): Promise<string> {
  const script = inScript(parts.script);
  const style = parts.style.replaceAll('</style', '<\\/style');
  const policy = [
    "default-src 'none'",
    `script-src '${await hashOf(script)}' 'wasm-unsafe-eval'`,
    'worker-src blob:',
    `style-src '${await hashOf(style)}'`,
    'img-src data:',
    "connect-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
  const icon = `data:image/svg+xml;base64,${base64(new TextEncoder().encode(parts.icon))}`;
  const json: ReportJson = {
    hash,
    recordings: recordings.map(({ recording, ...known }) => ({ ...known, isKept: recording !== undefined })),
  };
  const contents = recordings.map(({ recording }) => (recording ? base64(recording) : ''));
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)} - Weir</title>
<link rel="icon" href="${icon}">
<style>${style}</style>
</head>
<body>
<div id="app"></div>
<script type="application/json" id="weir-report">${inScript(JSON.stringify(json))}</script>
${contents.map((content) => `<script type="text/plain" class="weir-recording">${content}</script>`).join('\n')}
<script type="text/plain" id="weir-worker">${inScript(parts.worker)}</script>
<script>${script}</script>
</body>
</html>
`;
}

/** Hides text that would end a script element (`</script`) or change how it is parsed (`<!--`). */
function inScript(text: string): string {
  return text.replace(/<(?=\/script|!--)/gi, '\\u003c');
}

async function hashOf(text: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text));
  return `sha256-${base64(new Uint8Array(digest))}`;
}

/** Bytes that become text in one call. */
const CHUNK = 0x8000;

function base64(bytes: Uint8Array): string {
  let text = '';
  for (let at = 0; at < bytes.length; at += CHUNK) text += String.fromCharCode(...bytes.subarray(at, at + CHUNK));
  return btoa(text);
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}

// Builds the page as one HTML file that holds its scripts, styles, the recording and its analysis.
// The file works from a disk without a network, and its content policy forbids any network.
import { createHash } from 'node:crypto';
import type { AnalysisView } from '../view/analysis-view.ts';
import type { Assets } from './assets.ts';

export interface ReportContent {
  readonly name: string;
  /** A .weir file, compressed with gzip. */
  readonly recording: Uint8Array;
  /** The analyses made so far, by GPU. */
  readonly analyses: readonly { readonly gpu: number; readonly analysis: AnalysisView }[];
}

export function reportPage(assets: Assets, content: ReportContent): string {
  const script = inScript(textOf(assets['app.js'].bytes));
  const style = textOf(assets['app.css'].bytes).replaceAll('</style', '<\\/style');
  const policy = [
    "default-src 'none'",
    `script-src '${hashOf(script)}' 'wasm-unsafe-eval'`,
    'worker-src blob:',
    `style-src '${hashOf(style)}'`,
    'img-src data:',
    "connect-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
  const icon = `data:image/svg+xml;base64,${Buffer.from(assets['icon.svg'].bytes).toString('base64')}`;
  const analyses = inScript(JSON.stringify({ name: content.name, analyses: content.analyses }));
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(content.name)} - Weir</title>
<link rel="icon" href="${icon}">
<style>${style}</style>
</head>
<body>
<div id="app"></div>
<script type="application/json" id="weir-report">${analyses}</script>
<script type="text/plain" id="weir-recording">${Buffer.from(content.recording).toString('base64')}</script>
<script type="text/plain" id="weir-worker">${inScript(textOf(assets['worker.js'].bytes))}</script>
<script>${script}</script>
</body>
</html>
`;
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('utf8');
}

/** Hides text that would end a script element (`</script`) or change how it is parsed (`<!--`). */
function inScript(text: string): string {
  return text.replace(/<(?=\/script|!--)/gi, '\\u003c');
}

function hashOf(text: string): string {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`;
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}

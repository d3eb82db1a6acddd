// The page as one file: everything inside, nothing fetched, and no way for a name to become markup.
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import type { Assets } from '../../src/server/assets.ts';
import { reportPage } from '../../src/server/report-page.ts';

const asset = (text: string) => ({ type: '', bytes: new TextEncoder().encode(text) });
const assets: Assets = {
  'index.html': asset(''),
  'app.js': asset('console.log("</script><!-- tricky")'),
  'app.css': asset('body{color:red}'),
  'worker.js': asset('worker("</SCRIPT>")'),
  'icon.svg': asset('<svg/>'),
  'example.pickle.gz': asset(''),
};

describe('the report', () => {
  const html = reportPage(assets, { name: 'a"<b>&.pickle', recording: Uint8Array.of(1, 2, 3), analyses: [] });

  it('allows its own script and style by their hashes and nothing else', () => {
    const script = /<script>([\s\S]*?)<\/script>/.exec(html)![1]!;
    const style = /<style>([\s\S]*?)<\/style>/.exec(html)![1]!;
    const policy = /Content-Security-Policy" content="([^"]*)"/.exec(html)![1]!;
    for (const text of [script, style]) expect(policy).toContain(`'sha256-${createHash('sha256').update(text).digest('base64')}'`);
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("connect-src 'none'");
    expect(policy).not.toContain('unsafe-inline');
  });

  it('keeps scripts whole whatever is in them', () => {
    expect(html.match(/<script/g)).toHaveLength(4);
    expect(html.match(/<\/script>/g)).toHaveLength(4);
    expect(html).not.toContain('<!-- tricky');
    expect(html).toContain('\\u003c/script>');
  });

  it('writes names as text', () => {
    expect(html).toContain('<title>a&#34;&#60;b&#62;&#38;.pickle - Weir</title>');
  });

  it('holds the recording', () => {
    expect(html).toContain(`id="weir-recording">${Buffer.from([1, 2, 3]).toString('base64')}</script>`);
  });
});

// The page as one file: everything inside, nothing fetched, and no way for a name to become markup.
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { reportPage } from '../../src/view/report-page.ts';

const parts = {
  script: 'console.log("</script><!-- tricky")',
  style: 'body{color:red}',
  worker: 'worker("</SCRIPT>")',
  icon: '<svg/>',
};

describe('the report', async () => {
  const name = 'a"<b>&.pickle';
  const recordings = [{ name, recording: Uint8Array.of(1, 2, 3), ranks: undefined, analyses: [] }];
  const html = await reportPage(parts, { title: name, hash: '', recordings });

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
    expect(html).toContain(`class="weir-recording">${Buffer.from([1, 2, 3]).toString('base64')}</script>`);
  });
});

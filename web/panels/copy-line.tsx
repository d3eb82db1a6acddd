// A line of code with a button that copies it.
import { useState } from 'preact/hooks';

export function CopyLine({ line }: { line: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(line);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <div class="copy-line">
      <code>{line}</code>
      <button type="button" class="small" aria-label={`Copy ${line}`} onClick={() => void copy().catch(() => setCopied(false))}>
        {isCopied ? 'Copied' : 'Copy'}
      </button>
    </div>
  );
}

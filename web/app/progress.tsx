// A progress bar.

export function Progress({ note }: { note: { readonly doing: string; readonly fraction: number } }) {
  const percent = Math.round(Math.min(1, Math.max(0, note.fraction)) * 100);
  return (
    <div class="progress" role="progressbar" aria-valuemin={0} aria-valuemax={100} aria-valuenow={percent} aria-label={note.doing}>
      <div class="progress-track">
        <div class="progress-done" style={{ width: `${percent}%` }} />
      </div>
      <span class="faint">{note.doing}</span>
    </div>
  );
}

// The moment at which a run holds the most memory, and of several such moments the one in which most of it is in use:
// at the others the cache may lie empty, which says nothing about what the run needed.

export class ReservedPeak {
  bytes = 0;
  /** -1 before the first event. */
  event = -1;
  private allocated = 0;

  note(event: number, reservedBytes: number, allocatedBytes: number): void {
    if (reservedBytes < this.bytes || (reservedBytes === this.bytes && allocatedBytes <= this.allocated)) return;
    this.bytes = reservedBytes;
    this.event = event;
    this.allocated = allocatedBytes;
  }
}

// Finds the peak of reserved memory. Of several equal peaks it takes the one with most memory in use, since an idle cache
// says nothing about what the run needed.

export class ReservedPeak {
  bytes = 0;
  /** -1: before the first event. */
  event = -1;
  private allocated = 0;

  note(event: number, reservedBytes: number, allocatedBytes: number): void {
    if (reservedBytes < this.bytes || (reservedBytes === this.bytes && allocatedBytes <= this.allocated)) return;
    this.bytes = reservedBytes;
    this.event = event;
    this.allocated = allocatedBytes;
  }
}

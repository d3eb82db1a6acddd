// Access to the contents of a backend's memory, for tests that check what memory holds.

/** A backend whose memory can be read and written. Addresses must be mapped and have access set. */
export interface TouchableMemory {
  /** Fills a range with one 32-bit word. `bytes` must be a multiple of 4. */
  fill(address: number, bytes: number, word: number): void;
  /** The 32-bit word at an address. */
  readWord(address: number): number;
}

export function isTouchable(backend: object): backend is TouchableMemory {
  return 'fill' in backend && 'readWord' in backend;
}

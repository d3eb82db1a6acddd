// Reading and writing what a backend maps: only for checking that memory holds what was put there.

/** A backend whose memory can be touched. Addresses are those the backend handed out, with access set. */
export interface TouchableMemory {
  /** Fills a range, a multiple of 4 bytes long, with one 32-bit word. */
  fill(address: number, bytes: number, word: number): void;
  /** The 32-bit word at an address. */
  readWord(address: number): number;
}

export function isTouchable(backend: object): backend is TouchableMemory {
  return 'fill' in backend && 'readWord' in backend;
}

// Which handle is mapped where. Real drivers accept some misuse silently, so backends check here before each call.

export class Mappings {
  private readonly byAddress = new Map<number, { readonly handle: number; readonly bytes: number }>();

  has(address: number): boolean {
    return this.byAddress.has(address);
  }

  add(address: number, handle: number, bytes: number): void {
    this.byAddress.set(address, { handle, bytes });
  }

  /** Start addresses of the mappings that cover the range exactly; undefined if they do not. */
  tiling(address: number, bytes: number): number[] | undefined {
    const starts: number[] = [];
    let at = address;
    while (at < address + bytes) {
      const mapping = this.byAddress.get(at);
      if (!mapping) return undefined;
      starts.push(at);
      at += mapping.bytes;
    }
    return at === address + bytes ? starts : undefined;
  }

  /** Removes a mapping and returns its handle. */
  remove(address: number): number {
    const mapping = this.byAddress.get(address);
    this.byAddress.delete(address);
    return mapping?.handle ?? -1;
  }

  /** Start and length of every mapping. */
  *ranges(): Generator<[address: number, bytes: number]> {
    for (const [address, { bytes }] of this.byAddress) yield [address, bytes];
  }
}

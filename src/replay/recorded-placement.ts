// Puts the model's segments where the recording had them, so that ties between equal blocks break the same way.
import { InventedPlacement, type Placement } from '../device/simulated.ts';

/** Far from any recorded address: used once a replay asks for something the recording does not have. */
const OWN_TOP = 2 ** 48;
const OWN_BOTTOM = 2 ** 47;

export class RecordedPlacement implements Placement {
  private readonly invented = new InventedPlacement(OWN_TOP, OWN_BOTTOM);
  private plain: { address: number; size: number }[] = [];
  private expandable: number[] = [];

  /** The next piece the recording shows: a segment, or the first pages of an expandable one. */
  expect(address: number, size: number, expandable: boolean): void {
    if (expandable) this.expandable.push(address);
    else this.plain.push({ address, size });
  }

  clear(): void {
    this.plain = [];
    this.expandable = [];
  }

  malloc(bytes: number): number {
    const index = this.plain.findIndex((piece) => piece.size === bytes);
    return index < 0 ? this.invented.malloc(bytes) : this.plain.splice(index, 1)[0]!.address;
  }

  /** A new expandable segment begins where its first pages are mapped. */
  reserve(bytes: number): number {
    return this.expandable.shift() ?? this.invented.reserve(bytes);
  }
}

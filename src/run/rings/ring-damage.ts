// What a ring cannot be read for.

/** The content of a ring is invalid. The message says what. */
export class RingDamage extends Error {
  override name = 'RingDamage';
}

// The driver calls that can fail a request, by number: `failedCall` of an explanation.

export namespace Call {
  export const None: u32 = 0;
  export const Create: u32 = 1;
  export const Reserve: u32 = 2;
  export const MapHandle: u32 = 3;
  export const SetAccess: u32 = 4;
  /** The engine's own linear memory. */
  export const Own: u32 = 5;
}

// Why a request failed, by number: the driver call that failed last. The order is part of the ABI.

export namespace Call {
  export const None: u32 = 0;
  export const Create: u32 = 1;
  export const Reserve: u32 = 2;
  export const MapHandle: u32 = 3;
  export const SetAccess: u32 = 4;
  /** No driver call: the engine's own linear memory was exhausted. */
  export const Own: u32 = 5;
}

// Why a request could not be served: kept for the caller to ask about.

export namespace Call {
  export const None: u32 = 0;
  export const Create: u32 = 1;
  export const Reserve: u32 = 2;
  export const MapHandle: u32 = 3;
  export const SetAccess: u32 = 4;
  /** The engine's own linear memory. */
  export const Own: u32 = 5;
}

/** The driver call that failed last while the current request was being served. */
export let failedCall: u32 = Call.None;

export function noteFailure(call: u32): void {
  failedCall = call;
}

export function clearFailure(): void {
  failedCall = Call.None;
}

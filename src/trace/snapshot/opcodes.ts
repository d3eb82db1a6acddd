// Pickle opcodes that Weir refuses, by name. The decoder itself lists those it decodes.

/** Opcodes that import, call or build objects, or that plain data does not contain. */
const REFUSED: ReadonlyMap<number, string> = new Map([
  [0x63, 'GLOBAL'],
  [0x93, 'STACK_GLOBAL'],
  [0x52, 'REDUCE'],
  [0x69, 'INST'],
  [0x6f, 'OBJ'],
  [0x81, 'NEWOBJ'],
  [0x92, 'NEWOBJ_EX'],
  [0x62, 'BUILD'],
  [0x82, 'EXT1'],
  [0x83, 'EXT2'],
  [0x84, 'EXT4'],
  [0x50, 'PERSID'],
  [0x51, 'BINPERSID'],
  [0x97, 'NEXT_BUFFER'],
  [0x98, 'READONLY_BUFFER'],
  [0x8f, 'EMPTY_SET'],
  [0x90, 'ADDITEMS'],
  [0x91, 'FROZENSET'],
]);

/** Opcodes of protocols 0 and 1, which write numbers and strings as lines of text. */
const TEXT_OPCODES = 'IFLSUTVgp';

/** Why an opcode is refused, to follow "the pickle". `wanted` names what the opcode would import. */
export function refusalOf(opcode: number, at: number, wanted: string): string {
  const name = REFUSED.get(opcode);
  if (name) {
    return `holds the opcode ${name}${wanted} at byte ${at}, which would run code: Weir executes nothing from a file, and this is probably not a memory snapshot`;
  }
  if (TEXT_OPCODES.includes(String.fromCharCode(opcode))) {
    return `has an opcode of protocol 0 or 1 at byte ${at}, but memory snapshots use protocols 2 to 5: this is probably not one`;
  }
  return `is damaged at byte ${at}: 0x${opcode.toString(16).padStart(2, '0')} is not an opcode`;
}

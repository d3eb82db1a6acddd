// An answer as bytes, for HTTP: JSON, followed by the typed arrays as they are in memory.

const TYPES = { Uint8Array, Int32Array, Float64Array } as const;
type TypeName = keyof typeof TYPES;
const ALIGNMENT = 8;

interface ArrayMark {
  readonly $array: TypeName;
  readonly at: number;
  readonly length: number;
}

export function encodeAnswer(value: unknown): Uint8Array<ArrayBuffer> {
  const arrays: { bytes: Uint8Array; at: number }[] = [];
  let length = 0;
  const json = JSON.stringify(value ?? null, (_, entry: unknown) => {
    const type = (Object.keys(TYPES) as TypeName[]).find((name) => entry instanceof TYPES[name]);
    if (!type) return entry;
    const array = entry as Uint8Array | Int32Array | Float64Array;
    const mark: ArrayMark = { $array: type, at: length, length: array.length };
    arrays.push({ bytes: new Uint8Array(array.buffer, array.byteOffset, array.byteLength), at: length });
    length += Math.ceil(array.byteLength / ALIGNMENT) * ALIGNMENT;
    return mark;
  });
  const text = new TextEncoder().encode(json);
  const start = Math.ceil((4 + text.length) / ALIGNMENT) * ALIGNMENT;
  const whole = new Uint8Array(start + length);
  new DataView(whole.buffer).setUint32(0, text.length, true);
  whole.set(text, 4);
  for (const { bytes, at } of arrays) whole.set(bytes, start + at);
  return whole;
}

export function decodeAnswer(buffer: ArrayBuffer): unknown {
  const textLength = new DataView(buffer).getUint32(0, true);
  const start = Math.ceil((4 + textLength) / ALIGNMENT) * ALIGNMENT;
  const text = new TextDecoder().decode(new Uint8Array(buffer, 4, textLength));
  const value: unknown = JSON.parse(text, (_, entry: unknown) => {
    if (typeof entry !== 'object' || entry === null || !('$array' in entry)) return entry;
    const mark = entry as ArrayMark;
    return new TYPES[mark.$array](buffer, start + mark.at, mark.length);
  });
  return value ?? undefined;
}

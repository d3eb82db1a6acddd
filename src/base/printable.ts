// Makes text from files safe to print. Names in a recording can hold anything, and terminals obey control characters:
// they move the cursor, hide text or rename windows. Marks of writing direction can show code in another order.

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const UNSAFE = /[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
/** As `UNSAFE`, without line ends and tabs. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const UNSAFE_IN_LINES = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Foreign text on one line: every control character is written as its code, like \u001b. */
export function printable(text: string): string {
  return text.replace(UNSAFE, escaped);
}

/** As `printable`, for whole output: line ends and tabs stay. In JSON the result means the same. */
export function printableLines(text: string): string {
  return text.replace(UNSAFE_IN_LINES, escaped);
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/** A document with the table of PyTorch's versions between its markers. */
export function withVersions(text: string): string;

// How a piece of terminal text is marked up: with colours, or not at all.

export interface Paint {
  strong(text: string): string;
  good(text: string): string;
  bad(text: string): string;
  dim(text: string): string;
}

export const PLAIN: Paint = { strong: (text) => text, good: (text) => text, bad: (text) => text, dim: (text) => text };

/** How well a text answers to what was typed: all words have to be in it, in any order. 0 is not at all. */
export function score(text: string, words: readonly string[]): number {
  const lower = text.toLowerCase();
  let sum = 0;
  for (const word of words) {
    const at = lower.indexOf(word);
    const found =
      at === 0 ? 100
      : at > 0 ? (/[^a-z0-9]/.test(lower[at - 1]!) ? 70 : 40)
      : word.length > 2 && scattered(lower, word) ? 12
      : 0;
    if (found === 0) return 0;
    sum += found;
  }
  // Of two that fit as well, the shorter one is meant.
  return Math.max(1, sum / words.length - text.length / 8);
}

const FARTHEST = 6; // letters between two: every word is scattered over a long text

/** Its letters in their order, with others between: "sdg" is in "send_digest". */
function scattered(text: string, word: string): boolean {
  let from = 0;
  for (const letter of word) {
    const at = text.indexOf(letter, from);
    if (at < 0 || (from > 0 && at - from > FARTHEST)) return false;
    from = at + 1;
  }
  return true;
}

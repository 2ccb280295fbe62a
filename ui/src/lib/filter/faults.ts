/** What the server said is wrong with a filter, and where. */
import type { ProblemDocument } from "$lib/api/client";

export interface Fault {
  position: number;
  length: number;
  words: string;
}

export function faultOf(problem: ProblemDocument | undefined): Fault | undefined {
  if (problem?.position === undefined) return undefined;
  // The place is marked: it needs no saying, and no drawing with letters.
  const words = problem.detail.split("\n")[0]!.replace(/ \(at character \d+\)$/, "");
  return { position: problem.position, length: problem.length ?? 1, words };
}

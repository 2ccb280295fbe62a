/** Bytes as text, as the HTTP API has them: payloads whose `format` is "bytes". */

/** So many bytes become text at a time: a call takes that many arguments everywhere. */
const TOGETHER = 0x8000;

export function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let start = 0; start < bytes.length; start += TOGETHER) {
    text += String.fromCharCode(...bytes.subarray(start, start + TOGETHER));
  }
  return btoa(text);
}

export function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** Copying text. Browsers offer the clipboard over HTTPS and on this machine only; elsewhere there is the old way. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const focused = document.activeElement as HTMLElement | null;
  const place = document.createElement("textarea");
  place.value = text;
  ([...document.querySelectorAll("dialog[open]")].at(-1) ?? document.body).append(place); // beside an open dialog nothing can be selected
  place.select();
  const done = document.execCommand("copy");
  place.remove();
  focused?.focus({ preventScroll: true });
  if (!done) throw new Error("this browser does not allow it");
}

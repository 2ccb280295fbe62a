/**
 * A stream of events, for as long as somebody looks.
 *
 * Without HTTP/2 a browser has six connections to a server for all of its tabs, and every stream takes one for itself:
 * a few tabs in the background would leave none to read pages with. So a tab that is not seen gives its streams back.
 * A stream that the server refused is asked for again; the browser itself would give it up.
 */
import { root } from "./api/client";

const HIDDEN_MILLISECONDS = 5000;
const AGAIN_MILLISECONDS = 2000;
const LATEST_MILLISECONDS = 30_000;

export interface Streamed {
  /** what comes, by the name of the event */
  events: Record<string, (data: string) => void>;
  opened?: () => void;
  /** it broke off; `refused` when the server did not want it */
  lost?: (refused: boolean) => void;
}

/** The function that is returned ends it. */
export function stream(query: Record<string, string>, { events, opened, lost }: Streamed): () => void {
  const address = `${root}/api/jobs/events?${new URLSearchParams(query)}`;
  let source: EventSource | null = null;
  let timer = 0;
  let wait = AGAIN_MILLISECONDS;

  function open(): void {
    clearTimeout(timer);
    if (source || document.hidden) return;
    source = new EventSource(address);
    source.onopen = () => {
      wait = AGAIN_MILLISECONDS;
      opened?.();
    };
    source.onerror = () => {
      const refused = source?.readyState === EventSource.CLOSED; // otherwise the browser tries by itself
      if (refused) {
        close();
        timer = setTimeout(open, wait);
        wait = Math.min(wait * 2, LATEST_MILLISECONDS);
      }
      lost?.(refused);
    };
    for (const [name, tell] of Object.entries(events)) source.addEventListener(name, (event: MessageEvent<string>) => tell(event.data));
  }

  function close(): void {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  function seen(): void {
    clearTimeout(timer);
    if (!document.hidden) open();
    else timer = setTimeout(() => (close(), lost?.(false)), HIDDEN_MILLISECONDS);
  }

  document.addEventListener("visibilitychange", seen);
  open();
  return () => {
    document.removeEventListener("visibilitychange", seen);
    close();
  };
}

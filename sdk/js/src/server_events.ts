/** Server-sent events: from a stream of bytes to events, as https://html.spec.whatwg.org has them. */
import { TidewheelError } from "./errors.js";

/** The longest event that is taken, in characters: a job's whole timeline is far smaller. */
const LONGEST_EVENT = 16 * 1024 * 1024;

export interface ServerEvent {
  id: string;
  event: string;
  data: string;
}

/**
 * The events of a stream until it ends. `heard` is called whenever anything comes, comments included, and `stands` with
 * the id from which a stream that breaks now is to go on.
 */
export async function* serverEvents(
  body: ReadableStream<Uint8Array>,
  heard: () => void,
  stands: (id: string) => void,
): AsyncGenerator<ServerEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let id = "";
  let event = "";
  let data: string[] = [];
  let size = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return; // an event without its empty line is not whole, and not told
      heard();
      rest += decoder.decode(value, { stream: true });
      const lines = rest.split(/\r?\n/);
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line === "") {
          if (id !== "") stands(id); // that of an event without data, too: it says where a quiet stream is
          if (data.length > 0) yield { id, event: event || "message", data: data.join("\n") };
          [event, data, size] = ["", [], 0];
          continue;
        }
        const [name, text] = fieldOf(line);
        if (name === "id") id = text;
        else if (name === "event") event = text;
        else if (name === "data") data.push(text);
        size += line.length;
      }
      if (size + rest.length > LONGEST_EVENT) {
        throw new TidewheelError(`an event is longer than ${LONGEST_EVENT} characters`, "too_large");
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined); // it broke off already, and that is known
  }
}

function fieldOf(line: string): [name: string, text: string] {
  const colon = line.indexOf(":");
  if (colon < 0) return [line, ""];
  const text = line.slice(colon + 1);
  return [line.slice(0, colon), text.startsWith(" ") ? text.slice(1) : text];
}

/** What the server writes in place of a value that its setting `redact` hides. */
export const REDACTED = "[redacted]";

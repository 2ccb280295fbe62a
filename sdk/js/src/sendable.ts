/** What cannot be said as it was meant, on its way to the server: found here, before it says something else there. */

/** JSON has no word for these numbers and times and makes them null, which means "at once", or "for ever". */
export function checkNumbers(options: object, within = ""): void {
  for (const [name, value] of Object.entries(options)) {
    const where = within + name;
    if (typeof value === "number" && !Number.isFinite(value)) {
      throw new RangeError(`${where} is ${value}; give a finite number, or leave it out`);
    }
    if (value instanceof Date && Number.isNaN(value.getTime())) {
      throw new RangeError(`${where} is an ${String(value)}; give a time that exists, or leave it out`);
    }
    if (typeof value === "object" && value !== null) checkNumbers(value, `${where}.`);
  }
}

/** A part of a path. Dots that stand alone lead to another place, even written as %2E, and so does nothing at all. */
export function segment(what: string, name: string): string {
  if (name === "" || name === "." || name === "..") {
    const why = "in an address that leads to another place, and nothing was sent";
    throw new RangeError(`${what} is ${JSON.stringify(name)}; ${why}: give a name that is more than dots`);
  }
  return encodeURIComponent(name);
}

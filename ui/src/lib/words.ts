/** Numbers, times and sizes as people say them. */

const plain = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const dayAndTime = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

/** 12,345 */
export function number(value: number): string {
  return plain.format(value);
}

/** 12.3K, for places where width is short */
export function short(value: number): string {
  return value < 10_000 ? plain.format(value) : compact.format(value);
}

/** 3 jobs */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${number(count)} ${count === 1 ? one : many}`;
}

/** 120 ms, 3.4 s, 2 min 5 s, 3 h 20 min, 4 d */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.000005) return "0 ms";
  if (seconds < 0.0095) return `${(seconds * 1000).toFixed(seconds < 0.00095 ? 2 : 1)} ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return two(Math.floor(whole / 60), "min", whole % 60, "s");
  const minutes = Math.round(whole / 60);
  if (minutes < 24 * 60) return two(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(whole / 3600);
  return two(Math.floor(hours / 24), "d", hours % 24, "h");
}

/** 3 s, 2 min 5 s: of something that is still going on, and would flicker otherwise */
export function wholeSeconds(seconds: number): string {
  return seconds < 60 ? `${Math.max(0, Math.floor(seconds))} s` : duration(Math.floor(seconds));
}

function two(large: number, unit: string, little: number, smaller: string): string {
  return little === 0 ? `${large} ${unit}` : `${large} ${unit} ${little} ${smaller}`;
}

/** just now, 12 s ago, in 3 min, 2 h ago, 12 Nov 14:02 */
export function relative(at: number, now: number): string {
  const seconds = (now - at) / 1000;
  const size = Math.abs(seconds);
  if (size < 1.5) return "just now";
  if (size > 14 * 86_400) return (size > 180 * 86_400 ? day : dayAndTime).format(at); // without its year it would be any
  const text =
    size < 60 ? `${Math.floor(size)} s`
    : size < 3600 ? `${Math.floor(size / 60)} min`
    : size < 86_400 ? `${Math.floor(size / 3600)} h`
    : `${Math.floor(size / 86_400)} d`;
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}

/** The whole truth, in the zone of whoever looks. */
export function exactly(at: number): string {
  return exact.format(at);
}

/** 98.7 %; what is next to nothing or next to all is not called so */
export function percent(share: number | null | undefined): string {
  if (share === null || share === undefined) return "–";
  const value = share * 100;
  return `${value === 100 || value === 0 ? value : value > 99.9 ? ">99.9" : value < 0.1 ? "<0.1" : value.toFixed(1)} %`;
}

/** 12 kB */
export function bytes(count: number): string {
  if (count < 1000) return `${count} B`;
  if (count < 1e6) return `${(count / 1e3).toFixed(count < 1e4 ? 1 : 0)} kB`;
  return `${(count / 1e6).toFixed(1)} MB`;
}

export interface Rate {
  value: string;
  unit: "s" | "min" | "h";
}

/** 12/s, 3.4/min, 2/h: whichever says more */
export function rateOf(perSecond: number): Rate {
  if (perSecond === 0) return { value: "0", unit: "s" };
  if (perSecond >= 9.95) return { value: short(Math.round(perSecond)), unit: "s" };
  if (perSecond >= 1) return { value: perSecond.toFixed(1), unit: "s" };
  const perMinute = perSecond * 60;
  if (perMinute < 0.95) return { value: (perMinute * 60).toFixed(perMinute < 0.15 ? 1 : 0), unit: "h" };
  return { value: perMinute >= 9.95 ? String(Math.round(perMinute)) : perMinute.toFixed(1), unit: "min" };
}

export function rate(perSecond: number): string {
  const { value, unit } = rateOf(perSecond);
  return `${value}/${unit}`;
}

/** The end of a job's id: ids begin with their time, so that those of one minute begin alike. */
export function shortId(id: string): string {
  return id.slice(-8);
}

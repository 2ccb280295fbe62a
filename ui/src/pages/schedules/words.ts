/** When a schedule fires, as people say it. An expression that is not one of the usual ones stays as it is written. */
import type { Schema } from "$lib/api/client";
import { duration } from "$lib/words";

export type Schedule = Schema["ScheduleShape"];

const days = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const dayNames = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const months = ["", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const monthNames = ["", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];

const exactHere = (zone: string | undefined): Intl.DateTimeFormat =>
  new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZone: zone });

/** Tue, 17 Nov, 02:30:00, by the clocks of a zone; by those of whoever looks where none is given, or it is not known here. */
export function clockTime(at: string, zone?: string | null): string {
  try {
    return exactHere(zone ?? undefined).format(Date.parse(at));
  } catch {
    return exactHere(undefined).format(Date.parse(at));
  }
}

/** By the clocks of its zone, and which those are where one's own show something else. */
export function placedTime(at: string, zone: string | null): string {
  const there = clockTime(at, zone);
  return zone === null || there === clockTime(at) ? there : `${there} in ${zone.slice(zone.lastIndexOf("/") + 1).replaceAll("_", " ")}`;
}

export const ownZone = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone;

/** every day at 02:30; every 5 minutes; 5 4 L * * */
export function whenOf({ cron, every }: Pick<Schedule, "cron" | "every">): string {
  if (every !== null) return everyOf(every);
  return cron === null ? "at times nobody here can read" : (cronOf(cron) ?? cron);
}

/** Whether the words say all that the expression does. */
export const isSaid = ({ cron }: Pick<Schedule, "cron">): boolean => cron !== null && cronOf(cron) !== null;

function everyOf(seconds: number): string {
  const [amount, unit] =
    seconds % 86_400 === 0 ? [seconds / 86_400, "day"]
    : seconds % 3600 === 0 ? [seconds / 3600, "hour"]
    : seconds % 60 === 0 ? [seconds / 60, "minute"]
    : Number.isInteger(seconds) ? [seconds, "second"]
    : [0, ""];
  return unit === "" ? `every ${duration(seconds)}` : each(amount as number, unit as string);
}

const each = (count: number, unit: string): string => (count === 1 ? `every ${unit}` : `every ${count} ${unit}s`);

const isNumber = (text: string): boolean => /^\d{1,2}$/.test(text);
const twoDigits = (text: string): string => text.padStart(2, "0");

/** Null for what is better read as it is written. */
export function cronOf(expression: string): string | null {
  const fields = expression.trim().split(/\s+/);
  if (fields.length !== 5) return null;
  const [minute, hour, day, month, weekday] = fields as [string, string, string, string, string];
  if (minute.split(",").concat(hour.split(",")).some((one) => isNumber(one) && Number(one) > 59)) return null;
  const time = timesOf(minute, hour);
  const date = datesOf(day, month, weekday);
  if (time === null || date === null) return null;
  if (time.at) return `${date || "every day"} at ${time.text}`;
  return date ? `${time.text}, ${date}` : time.text;
}

/** `at`: moments of a day, not something that goes on all day. */
function timesOf(minute: string, hour: string): { text: string; at: boolean } | null {
  const step = /^\*\/(\d{1,2})$/;
  if (hour === "*") {
    if (minute === "*") return { text: "every minute", at: false };
    const minutes = step.exec(minute);
    if (minutes && 60 % Number(minutes[1]) === 0) return { text: each(Number(minutes[1]), "minute"), at: false };
    if (isNumber(minute)) return { text: minute === "0" ? "every hour" : `every hour, ${minute} min past`, at: false };
    return null;
  }
  if (!isNumber(minute)) return null;
  const hours = step.exec(hour);
  if (hours && 24 % Number(hours[1]) === 0) return { text: `${each(Number(hours[1]), "hour")}${minute === "0" ? "" : `, ${minute} min past`}`, at: false };
  const list = hour.split(",");
  if (!list.every((one) => isNumber(one) && Number(one) < 24) || list.length > 4) return null;
  return { text: listed(list.map((one) => `${twoDigits(one)}:${twoDigits(minute)}`)), at: true };
}

/** "" for every day. */
function datesOf(day: string, month: string, weekday: string): string | null {
  const inMonths = month === "*" ? "" : namesOf(month, monthNames, months);
  if (inMonths === null) return null;
  if (weekday !== "*") {
    if (day !== "*") return null; // either of them is enough, which no short sentence says well
    const named = namesOf(weekday, dayNames, days);
    return named === null ? null : `${named}${inMonths && ` in ${inMonths}`}`;
  }
  if (day === "*") return inMonths && `every day in ${inMonths}`;
  if (day === "L") return `on the last day of ${inMonths || "every month"}`;
  if (!day.split(",").every((one) => isNumber(one) && Number(one) >= 1 && Number(one) <= 31)) return null;
  const dates = listed(day.split(",").map(String));
  return `on day ${dates} of ${inMonths || "every month"}`;
}

function namesOf(field: string, short: readonly string[], long: readonly string[]): string | null {
  const one = (text: string): string | undefined => (isNumber(text) ? long[Number(text)] : long[short.indexOf(text.toUpperCase())]) || undefined;
  const parts = field.split(",").map((part) => {
    const [from, to, more] = part.split("-");
    if (from === undefined || more !== undefined) return undefined;
    const first = one(from);
    if (to === undefined) return first;
    const last = one(to);
    return first && last && `${first} to ${last}`;
  });
  return parts.every((part) => part) ? listed(parts as string[]) : null;
}

function listed(parts: readonly string[]): string {
  return parts.length < 2 ? (parts[0] ?? "") : `${parts.slice(0, -1).join(", ")} and ${parts[parts.length - 1]}`;
}

export const missedWords: Record<string, string> = {
  one: "one job for all that were missed",
  skip: "missed runs are left out",
  all: "a job for each missed run",
};

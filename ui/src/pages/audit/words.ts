/** Lines of the audit log as sentences: what was done, to what, and what else is known about it. */
import type Ban from "@lucide/svelte/icons/ban";
import CalendarClock from "@lucide/svelte/icons/calendar-clock";
import CircleX from "@lucide/svelte/icons/circle-x";
import Copy from "@lucide/svelte/icons/copy";
import Gauge from "@lucide/svelte/icons/gauge";
import KeyRound from "@lucide/svelte/icons/key-round";
import ListChecks from "@lucide/svelte/icons/list-checks";
import LogIn from "@lucide/svelte/icons/log-in";
import LogOut from "@lucide/svelte/icons/log-out";
import Pause from "@lucide/svelte/icons/pause";
import Play from "@lucide/svelte/icons/play";
import RotateCw from "@lucide/svelte/icons/rotate-cw";
import ScrollText from "@lucide/svelte/icons/scroll-text";
import Trash from "@lucide/svelte/icons/trash-2";
import TriangleAlert from "@lucide/svelte/icons/triangle-alert";
import UserRound from "@lucide/svelte/icons/user-round";
import type { Schema } from "$lib/api/client";
import { term } from "$lib/filter/writing";
import { jobHref, jobsHref } from "$lib/router.svelte";
import { duration, number, plural } from "$lib/words";

export type Line = Schema["AuditShape"];

export interface Look {
  icon: typeof Ban;
  /** before the target: "paused topic" */
  verb: string;
  tone: "" | "bad" | "warn";
}

const looks: Record<string, Look> = {
  login: { icon: LogIn, verb: "logged in", tone: "" },
  "login.failed": { icon: TriangleAlert, verb: "could not log in", tone: "bad" },
  logout: { icon: LogOut, verb: "logged out", tone: "" },
  "logout.everywhere": { icon: LogOut, verb: "logged out everywhere", tone: "" },
  "job.requeue": { icon: RotateCw, verb: "requeued job", tone: "" },
  "job.cancel": { icon: CircleX, verb: "cancelled job", tone: "warn" },
  "job.take-back": { icon: RotateCw, verb: "took back job", tone: "warn" },
  "job.delete": { icon: Trash, verb: "deleted job", tone: "bad" },
  "job.copy": { icon: Copy, verb: "made a copy of job", tone: "" },
  "topic.pause": { icon: Pause, verb: "paused topic", tone: "warn" },
  "topic.resume": { icon: Play, verb: "resumed topic", tone: "" },
  "topic.kick": { icon: RotateCw, verb: "requeued failed jobs of topic", tone: "" },
  "limits.set": { icon: Gauge, verb: "limited topic", tone: "warn" },
  "limits.remove": { icon: Gauge, verb: "removed the limits of topic", tone: "" },
  "schedule.create": { icon: CalendarClock, verb: "made schedule", tone: "" },
  "schedule.replace": { icon: CalendarClock, verb: "replaced schedule", tone: "warn" },
  "schedule.pause": { icon: Pause, verb: "paused schedule", tone: "warn" },
  "schedule.resume": { icon: Play, verb: "resumed schedule", tone: "" },
  "schedule.run": { icon: Play, verb: "ran schedule", tone: "" },
  "schedule.delete": { icon: Trash, verb: "deleted schedule", tone: "bad" },
  "bulk.start": { icon: ListChecks, verb: "began a bulk", tone: "warn" },
  "bulk.stop": { icon: ListChecks, verb: "stopped the bulk", tone: "" },
  "bulk.end": { icon: ListChecks, verb: "finished the bulk", tone: "" },
  "key.create": { icon: KeyRound, verb: "made API key", tone: "" },
  "key.revoke": { icon: KeyRound, verb: "revoked API key", tone: "bad" },
  "superuser.create": { icon: UserRound, verb: "made superuser", tone: "warn" },
  "superuser.password": { icon: UserRound, verb: "changed the password of", tone: "" },
  "superuser.remove": { icon: UserRound, verb: "removed superuser", tone: "bad" },
};

/** Those of a newer server are shown as they are called. */
export function lookOf(action: string): Look {
  return looks[action] ?? { icon: ScrollText, verb: action, tone: "" };
}

/** What the target is called, and where it can be seen. */
export function targetOf({ action, target, details }: Line): { text: string; href?: string } {
  const kind = action.split(".")[0];
  if (kind === "job") return { text: target, href: action === "job.delete" ? undefined : jobHref(target) };
  if (kind === "schedule") return { text: target, href: action === "schedule.delete" ? undefined : `schedules?${new URLSearchParams({ open: target })}` };
  if (kind === "topic" || kind === "limits") return { text: target, href: `topics?${new URLSearchParams({ q: target })}` };
  if (kind === "key") return { text: typeof details.name === "string" && details.name ? details.name : target, href: "access" };
  if (kind === "superuser") return { text: target, href: "access?tab=superusers" };
  if (kind === "bulk") {
    const filter = (details.filter ?? {}) as Record<string, string>;
    const where = [filter.where, ...Object.entries(filter).filter(([name]) => name !== "where").map(([name, value]) => term(name, value))].filter(Boolean).join(" ");
    return { text: `${String(details.action ?? "change")} of ${where || target}`, href: where ? jobsHref(where) : undefined };
  }
  return { text: target };
}

/** The rest, in few words. */
export function notesOf({ action, details, tenant, outcome }: Line): string[] {
  const notes: string[] = [];
  if (outcome === "failed") notes.push("failed");
  if (outcome === "started") notes.push("outcome not known yet");
  const rest: Record<string, unknown> = { ...details };
  const take = (name: string, say: (value: never) => string | null) => {
    if (!(name in rest)) return;
    const said = say(rest[name] as never);
    if (said) notes.push(said);
    delete rest[name];
  };
  if (action === "topic.pause") take("seconds", (seconds: number | null) => (seconds === null ? "until it is resumed" : `for ${duration(seconds)}`));
  if (action.startsWith("limits.")) {
    take("limits", (text: string) => text);
    take("removed", (yes: boolean) => (yes ? null : "it had none"));
  }
  if (action.startsWith("schedule.")) {
    take("when", (when: string) => when);
    take("for", (what: string) => `runs ${what}`);
  }
  take("kicked", (count: number) => plural(count, "job"));
  if (action.startsWith("bulk.")) {
    take("matched", (count: number) => `${number(count)} matched`);
    take("done", (count: number) => (action === "bulk.start" ? null : `${number(count)} changed`));
    take("state", (state: string) => (action === "bulk.start" || state === "done" ? null : state));
    for (const name of ["action", "filter"]) delete rest[name];
  }
  if (action.startsWith("key.")) {
    take("superuser", (yes: boolean) => (yes ? "superuser" : null));
    take("scopes", (scopes: string[]) => (details.superuser ? null : scopes.join(", ")));
    delete rest.name;
  }
  take("tenant", (of: string) => (of && of !== "root" ? `tenant ${of}` : null));
  for (const [name, value] of Object.entries(rest)) notes.push(`${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
  if (tenant !== "root" && !("tenant" in details)) notes.push(`tenant ${tenant}`);
  return notes;
}

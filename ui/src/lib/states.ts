/** How a job's state is called, coloured and drawn, everywhere. */
import Ban from "@lucide/svelte/icons/ban";
import CircleCheck from "@lucide/svelte/icons/circle-check";
import CircleDashed from "@lucide/svelte/icons/circle-dashed";
import CircleX from "@lucide/svelte/icons/circle-x";
import Clock from "@lucide/svelte/icons/clock";
import Hand from "@lucide/svelte/icons/hand";
import Inbox from "@lucide/svelte/icons/inbox";
import LoaderCircle from "@lucide/svelte/icons/loader-circle";
import RotateCw from "@lucide/svelte/icons/rotate-cw";
import type { Schema } from "./api/client";

export type ShownState = Schema["JobSummary"]["shown_state"];
type Tone = "ok" | "bad" | "busy" | "warn" | "later" | "wait";

export interface StateLook {
  label: string;
  tone: Tone;
  icon: typeof Ban;
  help: string;
}

export const states: Record<ShownState, StateLook> = {
  pending: { label: "Pending", tone: "wait", icon: CircleDashed, help: "due, waits for a worker" },
  delayed: { label: "Delayed", tone: "later", icon: Clock, help: "waits for its time" },
  retrying: { label: "Retrying", tone: "warn", icon: RotateCw, help: "an attempt errored; waits for the next" },
  blocked: { label: "Blocked", tone: "wait", icon: Hand, help: "waits for other jobs" },
  claimed: { label: "Claimed", tone: "busy", icon: Inbox, help: "taken by a worker, not started yet" },
  running: { label: "Running", tone: "busy", icon: LoaderCircle, help: "a worker runs it" },
  completed: { label: "Completed", tone: "ok", icon: CircleCheck, help: "ended well" },
  failed: { label: "Failed", tone: "bad", icon: CircleX, help: "no attempt is left" },
  cancelled: { label: "Cancelled", tone: "wait", icon: Ban, help: "stopped before it was done" },
};

/** Text and ground by tone. Whole class names: Tailwind finds only those it can read. */
export const tones: Record<Tone, { text: string; soft: string; dot: string }> = {
  ok: { text: "text-ok", soft: "bg-ok-soft", dot: "bg-ok" },
  bad: { text: "text-bad", soft: "bg-bad-soft", dot: "bg-bad" },
  busy: { text: "text-busy", soft: "bg-busy-soft", dot: "bg-busy" },
  warn: { text: "text-warn", soft: "bg-warn-soft", dot: "bg-warn" },
  later: { text: "text-later", soft: "bg-later-soft", dot: "bg-later" },
  wait: { text: "text-wait", soft: "bg-wait-soft", dot: "bg-wait" },
};

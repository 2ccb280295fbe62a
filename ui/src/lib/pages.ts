/**
 * The pages: their paths, names and icons, in the order of the navigation.
 *
 * Each is loaded when it is first shown, so that no visit costs more than what it looks at.
 */
import type { Component } from "svelte";
import CalendarClock from "@lucide/svelte/icons/calendar-clock";
import Gauge from "@lucide/svelte/icons/gauge";
import KeyRound from "@lucide/svelte/icons/key-round";
import Layers from "@lucide/svelte/icons/layers";
import List from "@lucide/svelte/icons/list";
import ScrollText from "@lucide/svelte/icons/scroll-text";
import Server from "@lucide/svelte/icons/server";
import SquareFunction from "@lucide/svelte/icons/square-function";
import TriangleAlert from "@lucide/svelte/icons/triangle-alert";

/** Brings the code of a page. */
export type Load = () => Promise<{ default: Component<{ id: string }> | Component }>;

export interface Page {
  path: string;
  name: string;
  icon: typeof Gauge;
  load: Load;
  /** the second key of "g …" */
  key: string;
  /** in the bar at the bottom of a phone */
  first?: boolean;
}

export const pages: readonly Page[] = [
  { path: "", name: "Overview", icon: Gauge, load: () => import("$pages/Overview.svelte"), key: "o", first: true },
  { path: "jobs", name: "Jobs", icon: List, load: () => import("$pages/Jobs.svelte"), key: "j", first: true },
  { path: "failures", name: "Failures", icon: TriangleAlert, load: () => import("$pages/Failures.svelte"), key: "f", first: true },
  { path: "topics", name: "Topics", icon: Layers, load: () => import("$pages/Topics.svelte"), key: "t", first: true },
  { path: "tasks", name: "Tasks", icon: SquareFunction, load: () => import("$pages/Tasks.svelte"), key: "a" },
  { path: "schedules", name: "Schedules", icon: CalendarClock, load: () => import("$pages/Schedules.svelte"), key: "s" },
  { path: "workers", name: "Workers", icon: Server, load: () => import("$pages/Workers.svelte"), key: "w" },
  { path: "access", name: "Access", icon: KeyRound, load: () => import("$pages/Access.svelte"), key: "k" },
  { path: "audit", name: "Audit log", icon: ScrollText, load: () => import("$pages/Audit.svelte"), key: "l" },
];

const loadJob: Load = () => import("$pages/Job.svelte");

/** What a path shows: a page, one job, or nothing we know. */
export function pageAt(path: string): { load: Load; props: { id: string } } | null {
  const job = /^jobs\/([^/]+)$/.exec(path);
  if (job) return { load: loadJob, props: { id: job[1]! } }; // an id needs no decoding, and what is none is not found
  const found = pages.find((one) => one.path === path);
  return found ? { load: found.load, props: { id: "" } } : null;
}

/** What completion knows: the fields of the language, and names that are in use. Asked for when the bar is first used. */
import { answer, api, type Schema } from "$lib/api/client";
import { live } from "$lib/live.svelte";
import type { Field, Known } from "./completion";

type Job = Schema["JobSummary"];

const MINUTE = 60_000;

class Vocabulary {
  #fields = $state.raw<readonly Field[]>([]);
  #tasks = $state.raw<readonly string[]>([]);
  #workers = $state.raw<readonly string[]>([]);
  #askedAt = 0;

  get fields(): readonly Field[] {
    return this.#fields;
  }

  async ask(): Promise<void> {
    if (Date.now() - this.#askedAt < MINUTE) return;
    this.#askedAt = Date.now();
    // Each is of use without the others, and the bar without all of them.
    await Promise.allSettled([
      answer(api.GET("/api/jobs/filter-fields")).then((list) => (this.#fields = list.items)),
      Promise.all([answer(api.GET("/api/jobs/tasks")), answer(api.GET("/api/jobs/lanes"))]).then(
        ([tasks, lanes]) => (this.#tasks = unique([...tasks.items.map((one) => one.name), ...lanes.items.map((one) => one.task)])),
      ),
      answer(api.GET("/api/jobs/workers")).then((list) => (this.#workers = list.items.map((one) => one.name))),
    ]);
  }

  /** With what the jobs in sight have. */
  with(jobs: readonly Job[]): Known {
    const seen = (of: (job: Job) => string | null) => unique(jobs.map((job) => of(job) ?? ""));
    return {
      fields: this.#fields,
      values: {
        topic: [...live.topics.keys()],
        task: this.#tasks,
        worker: unique([...this.#workers, ...seen((job) => job.worker)]),
        tenant: seen((job) => job.tenant),
        key: seen((job) => job.key),
        correlation_id: seen((job) => job.correlation_id),
        user_id: seen((job) => job.user_id),
        service_id: seen((job) => job.service_id),
        limit_key: seen((job) => job.limit_key),
        error: seen((job) => /^[\w.]+(?=:)/.exec(job.last_error ?? "")?.[0] ?? null),
      },
    };
  }
}

function unique(names: readonly string[]): string[] {
  return [...new Set(names)].filter(Boolean);
}

export const vocabulary = new Vocabulary();

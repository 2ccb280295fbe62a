/** Why a handler is to stop, as its signal says it. */
import { TidewheelError } from "../errors.js";

export type StopReason = "cancelled" | "lease_lost" | "timeout" | "shutting_down";

const CODES: Readonly<Record<StopReason, string>> = {
  cancelled: "job_canceled",
  lease_lost: "lease_lost",
  timeout: "job_timeout",
  shutting_down: "shutting_down",
};

/** The reason of `context.signal`: what `fetch` and everybody else who is given the signal throws. */
export class Stopped extends TidewheelError {
  readonly reason: StopReason;

  constructor(reason: StopReason, message: string) {
    super(message, CODES[reason]);
    this.reason = reason;
  }
}

/**
 * The present as the server has it, ticking once a second, for everything that says "3 s ago". Times come from there,
 * and a computer whose clock is off would tell of jobs that start in the future.
 */
const TICK_MILLISECONDS = 1000;
const SAID_MILLISECONDS = 2000; // a Date header leaves out fractions, and servers write it once a second

class Clock {
  now = $state(Date.now());
  #ahead = 0;

  constructor() {
    const tick = () => {
      if (!document.hidden) this.now = this.present();
    };
    setInterval(tick, TICK_MILLISECONDS);
    document.addEventListener("visibilitychange", tick);
  }

  /** To the millisecond, for what is reckoned once. */
  present(): number {
    return Date.now() + this.#ahead;
  }

  /** What an answer's Date header said, to a question asked at `sent`: a clock that is far off is set, and then
   *  corrected by no more than the next answers prove wrong. */
  heard(said: string | null, sent: number): void {
    const moment = Date.parse(said ?? "");
    if (Number.isNaN(moment)) return;
    const [least, most] = [moment - Date.now(), moment + SAID_MILLISECONDS - sent];
    const off = this.#ahead < least - SAID_MILLISECONDS || this.#ahead > most + SAID_MILLISECONDS;
    this.#ahead = off ? (least + most) / 2 : Math.min(most, Math.max(least, this.#ahead));
  }
}

export const clock = new Clock();

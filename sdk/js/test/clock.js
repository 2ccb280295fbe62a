/** Time that passes when a test says so. For what asks no real server: the network's own timers stand still as well. */

/** Step of the clock in seconds; nothing that is tested waits for less. */
const STEP = 0.25;

export function stopClock(context) {
  let now = 0;
  context.mock.timers.enable({ apis: ["setTimeout"] });
  context.mock.method(performance, "now", () => now);
  return {
    get seconds() {
      return now / 1000;
    },
    /** Somebody blocks the event loop for so many seconds: time passes, and no timer hears of it. */
    block(seconds) {
      now += seconds * 1000;
    },
    /** So many seconds pass, and everybody does what they do meanwhile. */
    async pass(seconds) {
      await turns();
      for (const until = now + seconds * 1000; now < until; ) {
        now += STEP * 1000;
        context.mock.timers.tick(STEP * 1000);
        await turns();
      }
    },
  };
}

async function turns() {
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

"""``python -m tests.faults.simulation``: one seed again, or many for the first time."""

from __future__ import annotations

import argparse
import sys
import time

from tests.faults.simulation.search import Tally, describe, search
from tests.faults.simulation.world import simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.simulation", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="run this seed")
    what.add_argument("--seeds", type=int, metavar="NUMBER", help="run so many seeds")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell everything that happens")
    parser.add_argument("--history", action="store_true", help="with --seed: print the events and no more")
    parser.add_argument("--from", type=int, default=0, dest="first", help="with --seeds: the first of them")
    parser.add_argument("--processes", type=int, default=2, help="with --seeds: how many work on it")
    options = parser.parse_args()
    began = time.monotonic()
    if options.seeds is not None:
        tally = search(options.first, options.seeds, options.processes, lambda text: print(text, flush=True))
    else:
        outcome = simulate(options.seed, trace=options.trace)
        if options.history:
            print(outcome.history())
            return 0
        tally = Tally()
        tally.count(outcome)
        print("nothing is wrong" if outcome.good else describe(outcome))
    print("\n".join(tally.lines(time.monotonic() - began)))
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())

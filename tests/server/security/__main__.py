"""How large the matrix is: ``python -m tests.server.security``."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.server.security.callers import published_key
from tests.server.security.cases import cases, meetings, sayings
from tests.server.security.oracle import expected, meets
from tests.server.security.world import Rules, world


async def main() -> None:
    asked, met = [*cases(), *sayings()], list(meetings())
    outcomes: Counter[str] = Counter()
    with published_key() as published:
        async with world(Rules.SOME, published) as made:
            callers = made.callers
    for rules in Rules:
        for caller in callers:
            outcomes.update(expected(rules, case, caller).name.lower() for case in asked)
            outcomes.update(meets(rules, case, caller)[0].name.lower() for case in met)
    routes = {(case.route.method, case.path) for case in asked}
    print(f"routes, aliases included     {len(routes):7,}")
    print(f"routes × what they name      {len(asked):7,}")
    print(f"ways to meet a job × jobs    {len(met):7,}")
    print(f"kinds of callers             {len(callers):7,}")
    print(f"settings of the rules        {len(Rules):7,}")
    print(f"cases                        {sum(outcomes.values()):7,}")
    for name, number in outcomes.most_common():
        print(f"  expected {name:19} {number:7,}")


if __name__ == "__main__":
    asyncio.run(main())

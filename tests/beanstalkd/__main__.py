"""``python -m tests.beanstalkd [FILE…]``: asks beanstalkd again, and writes what it says into the files."""

from __future__ import annotations

import asyncio
import sys

from tests.beanstalkd.conversation import DIRECTORY, read_file
from tests.beanstalkd.parallel_player import play_all
from tests.servers import Beanstalkd


def main(names: list[str]) -> None:
    for file in sorted(DIRECTORY.glob("*.txt")):
        if names and file.stem not in names:
            continue
        preface, conversations = read_file(file)
        played = asyncio.run(play_all(conversations, lambda options: Beanstalkd(*options)))
        for conversation in conversations:
            trouble = played[conversation.title].trouble
            if trouble is not None:
                raise SystemExit(f"{file.stem}, {conversation.title}: {trouble!r}")
        written = [
            conversation.with_replies(iter(played[conversation.title].heard)).written()
            for conversation in conversations
        ]
        file.write_text(preface + "\n".join(written), "utf-8")
        print(f"{file.stem}: {sum(len(found.replies) for found in conversations)} replies")


if __name__ == "__main__":
    main(sys.argv[1:])

"""A program in the place of Claude's: ``python -m tests.builtin.fake_claude LOG HOW``.

It notes each question in LOG, one line each, and then does what HOW says:
``answer``; ``half`` an answer and an exit code, the first time; ``stand`` still after half of it, the first
time; ``words`` as they are given after it, one for each question.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time


def main() -> None:
    log, how, *words = sys.argv[1:]
    prompt = sys.stdin.buffer.read()
    line = {"prompt": hashlib.sha256(prompt).hexdigest(), "pid": os.getpid()}
    descriptor = os.open(log, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, json.dumps(line).encode() + b"\n")
    with open(log, encoding="utf-8") as lines:
        number = len(lines.readlines())
    if how == "words":
        sys.stdout.write(words[min(number, len(words)) - 1])
        return
    answer = json.dumps({"answer": prompt.decode(), "number": number})
    if number > 1 or how == "answer":
        sys.stdout.write(answer)
        return
    sys.stdout.write(answer[: len(answer) // 2])
    sys.stdout.flush()
    if how == "half":
        sys.exit("the model fell asleep")
    os.write(descriptor, b'{"standing": true}\n')
    time.sleep(60)
    sys.stdout.write(answer)


if __name__ == "__main__":
    main()

"""The program that gets killed while it downloads, syncs or asks.

``python -m tests.builtin.network_task_victim`` starts it.
ROOT is the directory it may write to; AWS_ENDPOINT and CLAUDE_COMMAND (JSON) configure the other two.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import tidewheel
from tidewheel import Tidewheel
from tidewheel.builtin.aws_client import Credentials

app = Tidewheel(poll_interval=0.05)
app.include(
    tidewheel.builtin,
    roots=[os.environ["ROOT"]],
    allowed_hosts=["127.0.0.1"],
    allowed_networks=["127.0.0.1/32"],
    aws_region="eu-central-1",
    aws_resource_types=["AWS::Test::Thing"],
    aws_endpoint=os.environ.get("AWS_ENDPOINT", "http://127.0.0.1:1/"),
    aws_credentials=lambda: Credentials("AKIDEXAMPLE", "secret"),
    claude_command=json.loads(os.environ.get("CLAUDE_COMMAND", '["false"]')),
)


async def main() -> None:
    async with app:
        worker = app.worker(concurrency=2)
        print("ready", flush=True)
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
    sys.exit(0)

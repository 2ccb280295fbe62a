"""Greetings that are written in the background: FastAPI, with the worker in the same process."""

import asyncio
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, FastAPI, HTTPException

from tidewheel import JobNotFound, Tidewheel
from tidewheel.integrations.starlette import get_tidewheel, lifespan
from tidewheel.server import create_api

queue = Tidewheel()  # $TIDEWHEEL_URL, or sqlite:///tidewheel.db


@queue.task
async def write_greeting(name: str) -> str:
    await asyncio.sleep(0.1)  # something slow
    return f"Hello, {name}!"


api = create_api(queue)
web = FastAPI(lifespan=lifespan(queue, worker=True, api=api))
web.mount("/tidewheel", api)  # the HTTP API of the queue, and the web UI at /tidewheel/ui/


@web.post("/greetings", status_code=202)
async def order_greeting(name: str) -> dict[str, Any]:
    job = await write_greeting.enqueue(name=name)
    return {"id": job.id}


@web.get("/greetings/{job_id}")
async def read_greeting(job_id: UUID, queue: Annotated[Tidewheel, Depends(get_tidewheel)]) -> dict[str, Any]:
    try:
        job = await queue.get(job_id)
    except JobNotFound:
        raise HTTPException(404, "there is no such greeting") from None
    done = job.state == "completed"
    return {"state": job.state, "greeting": await job.result() if done else None}

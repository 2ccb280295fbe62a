"""Reports that are written in the background: Flask with an application factory, and a worker beside it."""

import time
from typing import Any

from flask import Flask, abort, current_app

from tidewheel import JobNotFound
from tidewheel.integrations.flask import FlaskTidewheel

queue = FlaskTidewheel()  # $TIDEWHEEL_URL, or sqlite:///tidewheel.db


@queue.task
def write_report(title: str) -> str:
    time.sleep(0.1)  # something slow
    return f"{title}, by {current_app.config['AUTHOR']}"


def create_app() -> Flask:
    app = Flask(__name__)
    app.config.from_mapping(AUTHOR="the accounts department")
    app.config.from_prefixed_env()  # FLASK_TIDEWHEEL_WORKER=true runs the jobs in the web process
    queue.init_app(app)

    @app.post("/reports/<title>")
    def order_report(title: str) -> tuple[dict[str, Any], int]:
        job = write_report.sync.enqueue(title=title)
        return {"id": job.id}, 202

    @app.get("/reports/<uuid:job_id>")
    def read_report(job_id: str) -> dict[str, Any]:
        try:
            job = queue.sync.get(job_id)
        except JobNotFound:
            abort(404)
        return {"state": job.state, "report": job.result() if job.state == "completed" else None}

    return app

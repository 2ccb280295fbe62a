"""Tasks of Tidewheel itself."""

from desk.models import Note
from tidewheel import Context
from tidewheel.integrations.django import app


@app.task
def count_notes(ctx: Context, least: int) -> int:
    return max(least, Note.objects.count())

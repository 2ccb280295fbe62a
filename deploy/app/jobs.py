"""The app of the compose file: one task, to see that everything works. Put yours here."""

from tidewheel import Context, Tidewheel

app = Tidewheel()  # where the jobs live is in TIDEWHEEL_URL


@app.task(max_attempts=5, timeout=60)
async def greet(ctx: Context, name: str) -> str:
    await ctx.progress(50, "thinking")
    return f"Hello, {name}!"

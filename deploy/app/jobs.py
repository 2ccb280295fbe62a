"""The app of the compose file: one task, to see that everything works. Put yours here."""

from windlass import Context, Windlass

app = Windlass()  # where the jobs live is in WINDLASS_URL


@app.task(max_attempts=5, timeout=60)
async def greet(ctx: Context, name: str) -> str:
    await ctx.progress(50, "thinking")
    return f"Hello, {name}!"

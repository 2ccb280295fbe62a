"""The limit of the server: the schema's claim and settle, driven by pgbench, which is written in C."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from run_raw_store import BATCH, RawStoreSystem
from talk import serve, tally

from tidewheel.stores.postgres.claims import ERROR_MESSAGES

SETTINGS = "-c jit=off -c enable_seqscan=off -c plan_cache_mode=force_generic_plan"
"""As the sessions of Tidewheel have them."""

SCRIPT = """
WITH granted AS MATERIALIZED (
    SELECT o_id, o_fence FROM {schema}.claim(
        NULL, 'pgbench', ARRAY['job'], ARRAY['job'], NULL, NULL, NULL, NULL, {batch}, 60000000, NULL, false,
        true, {words}, 1, 1, {batch}, NULL, true
    ) WHERE o_id IS NOT NULL
), batches AS (
    SELECT o_fence / 64 AS batch, bit_or(1::bigint << (o_fence % 64)::integer) AS mask, count(*) AS n
    FROM granted GROUP BY 1
), listed AS MATERIALIZED (
    SELECT array_agg(batch ORDER BY batch) AS batches, array_agg(mask ORDER BY batch) AS masks,
           array_agg(start ORDER BY batch) AS starts,
           (SELECT array_agg(o_id ORDER BY o_fence) FROM granted) AS ids
    FROM (SELECT batch, mask, (sum(n) OVER (ORDER BY batch) - n)::integer AS start FROM batches) AS placed
)
SELECT count(*) FROM listed, LATERAL {schema}.complete_batched(
    NULL, batches, masks, starts, ids, array_fill(0::bigint, ARRAY[cardinality(ids)]), NULL
);
"""


class RawPgbenchSystem(RawStoreSystem):
    async def work(self, concurrency: int) -> None:
        jobs = (await self.left())["unfinished"] or 0
        words = "ARRAY[" + ", ".join("'" + word.replace("'", "''") + "'" for word in ERROR_MESSAGES) + "]"
        with tempfile.TemporaryDirectory() as directory:
            script = Path(directory) / "drain.sql"
            script.write_text(SCRIPT.format(schema="tidewheel", batch=BATCH, words=words))
            tally.first_ns = time.monotonic_ns()
            process = await asyncio.create_subprocess_exec(
                *("pgbench", "--no-vacuum", "--protocol=prepared", "--client=1", f"--file={script}"),
                *(f"--transactions={-(-jobs // BATCH)}", self.url),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, "PGOPTIONS": SETTINGS},
            )
            output, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"pgbench failed: {output.decode()[-500:]}")
        tally.ran, tally.last_ns = jobs, time.monotonic_ns()


if __name__ == "__main__":
    serve(RawPgbenchSystem())

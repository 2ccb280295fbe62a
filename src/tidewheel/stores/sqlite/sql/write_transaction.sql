-- name: add_to_tidewheel_job_counts
ON CONFLICT (tenant, topic, task, state) DO UPDATE SET n = n + excluded.n

-- name: add_to_tidewheel_minute_metrics
ON CONFLICT (minute, metric, bucket) DO UPDATE SET n = n + excluded.n, total = total + excluded.total

-- name: add_to_tidewheel_lane_minute_metrics
ON CONFLICT (minute, topic, task) DO UPDATE
SET enqueued = enqueued + excluded.enqueued, completed = completed + excluded.completed,
    failed = failed + excluded.failed, cancelled = cancelled + excluded.cancelled, retried = retried + excluded.retried,
    runs = runs + excluded.runs, run_us = run_us + excluded.run_us, waits = waits + excluded.waits,
    wait_us = wait_us + excluded.wait_us

-- name: reserve_sequence
UPDATE tidewheel_sequences SET value = value + ? WHERE name = ? RETURNING value

-- name: last_lock_pause
-- The last pause in which the write lock was held for long (see write_transaction.py); NULLs if there was none.
SELECT (SELECT value FROM tidewheel_sequences WHERE name = 'gap_began'),
       (SELECT value FROM tidewheel_sequences WHERE name = 'gap_ended')

-- name: record_lock_pause
INSERT INTO tidewheel_sequences (name, value) VALUES ('gap_began', ?), ('gap_ended', ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

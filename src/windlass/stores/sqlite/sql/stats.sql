-- name: counts
SELECT topic, state, sum(n) FROM windlass_counts WHERE ? IS NULL OR tenant = ? GROUP BY topic, state

-- name: due_but_waiting
-- Delayed jobs nobody has promoted yet, because no worker has claimed since they became due.
SELECT count(*) FROM windlass_jobs WHERE state = 0 AND blocked = 0 AND run_at <= ?

-- name: due_but_waiting_of_tenant
SELECT count(*) FROM windlass_jobs WHERE state = 0 AND blocked = 0 AND run_at <= ? AND tenant = ?

-- name: blocked
SELECT count(*) FROM windlass_jobs WHERE blocked > 0 AND state = 0 AND (? IS NULL OR tenant = ?)

-- name: pauses
SELECT topic, paused_until FROM windlass_topics WHERE paused_until > ?

-- name: minutes
SELECT minute, metric, bucket, sum(n), sum(total) FROM windlass_minutes
WHERE minute >= ? GROUP BY minute, metric, bucket

-- name: oldest_waiting
SELECT run_at FROM windlass_jobs WHERE state = 0 AND blocked = 0 AND run_at <= ? ORDER BY run_at LIMIT 1

-- name: oldest_promoted
SELECT run_at FROM windlass_jobs WHERE state = 1 AND run_at > created_at ORDER BY run_at LIMIT 1

-- name: lanes_with_ready
SELECT DISTINCT topic, task FROM windlass_counts WHERE state = 1 AND n > 0

-- name: oldest_of_priority
-- Jobs that were never delayed are due in the order of their numbers, so the first one has waited longest.
SELECT priority, run_at FROM windlass_jobs
WHERE state = 1 AND topic = ? AND task = ? AND priority < ? AND run_at <= created_at
ORDER BY priority DESC, number LIMIT 1

-- name: oldest_of_tenant
SELECT min(run_at) FROM windlass_jobs WHERE state IN (0, 1) AND blocked = 0 AND run_at <= ? AND tenant = ?

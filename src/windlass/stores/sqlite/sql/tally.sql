-- name: add_counts
-- A plain upsert: with one writer at a time there is no hot row to fight over (PostgreSQL appends and folds).
INSERT INTO windlass_counts (tenant, topic, task, state, n)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (tenant, topic, task, state) DO UPDATE SET n = n + excluded.n

-- name: add_minutes
INSERT INTO windlass_minutes (minute, topic, metric, bucket, n, total)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (minute, topic, metric, bucket) DO UPDATE SET n = n + excluded.n, total = total + excluded.total

-- name: take_numbers
UPDATE windlass_sequences SET value = value + ? WHERE name = ? RETURNING value

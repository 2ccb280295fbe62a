-- name: add_counts
-- A plain upsert: with one writer at a time there is no hot row to fight over (PostgreSQL appends and folds).
-- All of them from one JSON value, and so in one step: each step costs a fight for the interpreter.
INSERT INTO windlass_counts (tenant, topic, task, state, n)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]'), json_extract(value, '$[4]')
FROM json_each(?) WHERE true
ON CONFLICT (tenant, topic, task, state) DO UPDATE SET n = n + excluded.n

-- name: add_minutes
INSERT INTO windlass_minutes (minute, metric, bucket, n, total)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]'), json_extract(value, '$[4]')
FROM json_each(?) WHERE true
ON CONFLICT (minute, metric, bucket) DO UPDATE SET n = n + excluded.n, total = total + excluded.total

-- name: take_numbers
UPDATE windlass_sequences SET value = value + ? WHERE name = ? RETURNING value

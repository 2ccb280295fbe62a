-- name: add_to_windlass_counts
ON CONFLICT (tenant, topic, task, state) DO UPDATE SET n = n + excluded.n

-- name: add_to_windlass_minutes
ON CONFLICT (minute, metric, bucket) DO UPDATE SET n = n + excluded.n, total = total + excluded.total

-- name: take_numbers
UPDATE windlass_sequences SET value = value + ? WHERE name = ? RETURNING value

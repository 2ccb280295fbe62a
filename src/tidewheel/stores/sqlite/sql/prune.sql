-- name: prunable
-- In the order of the index. Whatever else keeps a job from being removed is to be said here.
-- size: what is freed with it, near enough; the length of a value is told without reading it.
SELECT j.number, j.state, j.tenant, j.topic, j.task, j.key,
       coalesce((SELECT length(b.payload) FROM tidewheel_bodies b WHERE b.number = j.number), 0)
       + coalesce((SELECT length(r.result) FROM tidewheel_results r WHERE r.number = j.number), 0)
       + coalesce((SELECT length(p.checkpoint) FROM tidewheel_progress p WHERE p.number = j.number), 0)
       + coalesce((SELECT sum(length(s.output)) FROM tidewheel_steps s WHERE s.number = j.number), 0) AS size
FROM tidewheel_jobs j
WHERE j.prune_at IS NOT NULL AND j.prune_at <= ? ORDER BY j.prune_at LIMIT ?

-- name: forget_minutes
DELETE FROM tidewheel_minutes WHERE minute < ?

-- name: forget_lane_minutes
DELETE FROM tidewheel_lane_minutes WHERE minute < ?

-- name: forget_counts
DELETE FROM tidewheel_counts WHERE n = 0

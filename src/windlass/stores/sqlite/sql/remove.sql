-- name: remove_jobs
DELETE FROM windlass_jobs WHERE number IN (SELECT value FROM json_each(?))

-- name: remove_bodies
DELETE FROM windlass_bodies WHERE number IN (SELECT value FROM json_each(?))

-- name: remove_results
DELETE FROM windlass_results WHERE number IN (SELECT value FROM json_each(?))

-- name: remove_progress
DELETE FROM windlass_progress WHERE number IN (SELECT value FROM json_each(?))

-- name: remove_attempts
DELETE FROM windlass_attempts WHERE number IN (SELECT value FROM json_each(?))

-- name: remove_steps
DELETE FROM windlass_steps WHERE number IN (SELECT value FROM json_each(?))

-- name: remove_key
-- Only its own: with until="finished" another job may hold the key by now.
DELETE FROM windlass_keys WHERE {key} AND number = ?

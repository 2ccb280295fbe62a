-- name: remove_jobs
DELETE FROM tidewheel_jobs WHERE number IN (SELECT value FROM json_each(?))

-- name: remove_bodies
DELETE FROM tidewheel_bodies WHERE number IN (SELECT value FROM json_each(?))

-- name: remove_results
DELETE FROM tidewheel_results WHERE number IN (SELECT value FROM json_each(?))

-- name: remove_progress
DELETE FROM tidewheel_progress WHERE number IN (SELECT value FROM json_each(?))

-- name: remove_attempts
DELETE FROM tidewheel_attempts WHERE number IN (SELECT value FROM json_each(?))

-- name: remove_steps
DELETE FROM tidewheel_steps WHERE number IN (SELECT value FROM json_each(?))

-- name: remove_key
-- Only if the job still holds it: with until="finished", another job may hold the key now.
DELETE FROM tidewheel_job_keys WHERE {key} AND number = ?

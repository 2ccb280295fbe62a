-- name: listeners
SELECT port, ready, finished FROM tidewheel_listeners

-- name: register
INSERT INTO tidewheel_listeners (port, ready, finished, seen_at) VALUES (?, ?, ?, ?)
ON CONFLICT (port) DO UPDATE
SET ready = excluded.ready, finished = excluded.finished, seen_at = excluded.seen_at

-- name: drop_stale
DELETE FROM tidewheel_listeners WHERE seen_at < ?

-- name: unregister
DELETE FROM tidewheel_listeners WHERE port = ?

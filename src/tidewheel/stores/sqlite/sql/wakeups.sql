-- name: listeners
SELECT port, ready, finished FROM tidewheel_wakeup_listeners

-- name: register
INSERT INTO tidewheel_wakeup_listeners (port, ready, finished, seen_at) VALUES (?, ?, ?, ?)
ON CONFLICT (port) DO UPDATE
SET ready = excluded.ready, finished = excluded.finished, seen_at = excluded.seen_at

-- name: drop_stale
DELETE FROM tidewheel_wakeup_listeners WHERE seen_at < ?

-- name: unregister
DELETE FROM tidewheel_wakeup_listeners WHERE port = ?

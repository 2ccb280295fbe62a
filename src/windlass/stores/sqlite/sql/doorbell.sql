-- name: listeners
SELECT port, ready, finished FROM windlass_listeners

-- name: register
INSERT INTO windlass_listeners (port, ready, finished, seen_at) VALUES (?, ?, ?, ?)
ON CONFLICT (port) DO UPDATE
SET ready = excluded.ready, finished = excluded.finished, seen_at = excluded.seen_at

-- name: drop_stale
DELETE FROM windlass_listeners WHERE seen_at < ?

-- name: unregister
DELETE FROM windlass_listeners WHERE port = ?

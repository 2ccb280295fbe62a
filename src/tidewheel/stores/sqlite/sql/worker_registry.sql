-- name: record_heartbeat
INSERT INTO tidewheel_workers (name, host, pid, version, started_at, seen_at, details)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE
SET host = excluded.host, pid = excluded.pid, version = excluded.version, started_at = excluded.started_at,
    seen_at = excluded.seen_at, details = excluded.details

-- name: deregister
-- Only its own entry: a worker that was restarted under the same name may have sent a heartbeat already.
DELETE FROM tidewheel_workers WHERE name = ? AND started_at = ?

-- name: workers
SELECT name, host, pid, version, started_at, seen_at, details FROM tidewheel_workers
ORDER BY seen_at DESC, name LIMIT ?

-- name: delete_vanished
DELETE FROM tidewheel_workers WHERE seen_at <= ?

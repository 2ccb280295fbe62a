-- name: record_heartbeat
INSERT INTO {schema}.workers (name, host, pid, version, started_at, seen_at, details)
VALUES ($1, $2, $3, $4, $5, {schema}.now_us($6::bigint), $7)
ON CONFLICT (name) DO UPDATE
SET host = excluded.host, pid = excluded.pid, version = excluded.version, started_at = excluded.started_at,
    seen_at = excluded.seen_at, details = excluded.details

-- name: deregister
-- Only its own entry: a worker that was restarted under the same name may have sent a heartbeat already.
DELETE FROM {schema}.workers WHERE name = $1 AND started_at = $2

-- name: workers
-- Names in the order of their bytes, whatever the database's language: that is how Python sorts them.
SELECT name, host, pid, version, started_at, seen_at, details FROM {schema}.workers
ORDER BY seen_at DESC, name COLLATE "C" LIMIT $1

-- name: delete_vanished
DELETE FROM {schema}.workers WHERE seen_at <= {schema}.now_us($1::bigint) - $2::bigint

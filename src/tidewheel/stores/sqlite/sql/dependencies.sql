-- name: parent
SELECT id, state, has_dependents FROM tidewheel_jobs WHERE {tenant} AND id = ?

-- name: is_visible
-- Whether the caller that enqueues a new job may see this one, which has the same tenant. The write lock is held, so
-- the result is still true at the write.
SELECT EXISTS (SELECT 1 FROM tidewheel_jobs j WHERE j.id = ? AND {condition})

-- name: add_dependency
INSERT INTO tidewheel_dependencies (child, parent, position, after_any, unresolved) VALUES (?, ?, ?, ?, ?)

-- name: set_has_dependents
-- A job is kept as long as jobs run after it. clear_has_dependents sets prune_at when the last of them is gone.
UPDATE tidewheel_jobs SET has_dependents = 1, prune_at = NULL WHERE id = ?

-- name: block
-- For a job that was just written as if it had no parents, or that was requeued.
UPDATE tidewheel_jobs SET blocked = ?, state = 0 WHERE number = ?

-- name: restore_parents
-- For a requeued job: it waits only for parents that have not ended yet. Others count as resolved in whatever state
-- they ended.
UPDATE tidewheel_dependencies
SET unresolved = EXISTS (SELECT 1 FROM tidewheel_jobs p WHERE p.id = tidewheel_dependencies.parent AND p.state < 3)
WHERE child = ?

-- name: must_wait
SELECT EXISTS (
    SELECT 1 FROM tidewheel_dependencies d JOIN tidewheel_jobs p ON p.id = d.parent WHERE d.child = ? AND p.state < 3
)

-- name: blocked_by
SELECT coalesce(sum(unresolved), 0) FROM tidewheel_dependencies WHERE child = ?

-- name: first_ended_parent
SELECT parent, state FROM tidewheel_ended_parents ORDER BY parent LIMIT 1

-- name: unresolved_children
-- {columns}: the fields of the row type in settlements.py. Includes children that have ended
-- already: the caller marks them as resolved and does not change their jobs.
SELECT d.child, d.after_any, {columns}
FROM tidewheel_dependencies d JOIN tidewheel_jobs ON number = d.child
WHERE d.parent = ? AND d.unresolved = 1 ORDER BY d.child LIMIT ?

-- name: resolve_dependency
UPDATE tidewheel_dependencies SET unresolved = 0 WHERE child = ? AND parent = ?

-- name: unblock
UPDATE tidewheel_jobs SET blocked = blocked - 1, state = :state WHERE number = :number

-- name: delete_ended_parent_by_id
DELETE FROM tidewheel_ended_parents WHERE parent = ?

-- name: delete_ended_parent_by_number
DELETE FROM tidewheel_ended_parents WHERE parent = (SELECT id FROM tidewheel_jobs WHERE number = ?)

-- name: parents_of_many
SELECT DISTINCT parent FROM tidewheel_dependencies WHERE child IN (SELECT value FROM json_each(?))

-- name: delete_dependencies
DELETE FROM tidewheel_dependencies WHERE child IN (SELECT value FROM json_each(?))

-- name: clear_has_dependents
-- No job runs after it any more: prune_at becomes what it would have been.
UPDATE tidewheel_jobs
SET has_dependents = 0, prune_at = CASE WHEN state < 3 OR buried = 1 THEN NULL
                                 WHEN state = 4 THEN finished_at + retention_failed_us
                                 ELSE finished_at + retention_us END
WHERE id = ? AND NOT EXISTS (SELECT 1 FROM tidewheel_dependencies d WHERE d.parent = tidewheel_jobs.id)

-- name: parents
SELECT d.parent, p.state, d.unresolved AND j.state < 2, d.after_any
FROM tidewheel_dependencies d JOIN tidewheel_jobs j ON j.number = d.child
LEFT JOIN tidewheel_jobs p ON p.id = d.parent
WHERE d.child = ? ORDER BY d.position

-- name: dependents
SELECT j.id, j.state, d.unresolved AND j.state < 2
FROM tidewheel_dependencies d JOIN tidewheel_jobs j ON j.number = d.child
WHERE {tenant} AND d.parent = ? ORDER BY d.child LIMIT ?

-- name: count_dependents
SELECT count(*) FROM (
    SELECT 1 FROM tidewheel_dependencies d JOIN tidewheel_jobs j ON j.number = d.child
    WHERE {tenant} AND d.parent = ? LIMIT ?
)

-- name: imported_parents
-- For imported jobs, which may come before or after their parents: the parents among all jobs that are here now.
SELECT DISTINCT p.id FROM tidewheel_dependencies d JOIN tidewheel_jobs p ON p.id = d.parent
WHERE d.child IN (SELECT value FROM json_each(:numbers)) OR p.number IN (SELECT value FROM json_each(:numbers))

-- name: requeue_ended_parents
-- A parent may have ended in the other store, before that was applied to all its children.
INSERT INTO tidewheel_ended_parents (parent, state)
SELECT p.id, p.state FROM tidewheel_jobs p
WHERE p.id = ? AND p.state > 2 AND EXISTS (
    SELECT 1 FROM tidewheel_dependencies d WHERE d.parent = p.id AND d.unresolved = 1
)
ON CONFLICT (parent) DO UPDATE SET state = excluded.state

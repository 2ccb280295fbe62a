-- name: release
SELECT * FROM {schema}.release($1::bigint, $2::integer, true)

-- name: dependents
-- Children never are in packs while they wait; those that run may be.
SELECT d.child, j.state, d.waits AND j.state < 2
FROM {schema}.dependencies d
JOIN {schema}.all_jobs j ON j.id = d.child AND j.tenant = d.tenant AND (j.beside IS NULL OR j.beside @> ARRAY[d.child])
WHERE d.parent = $1::uuid AND ($2::text IS NULL OR d.tenant = $2)
ORDER BY j.number LIMIT $3::integer

-- name: how_many_dependents
SELECT count(*) FROM (
    SELECT FROM {schema}.dependencies d WHERE d.parent = $1::uuid AND ($2::text IS NULL OR d.tenant = $2) LIMIT $3::integer
) AS d

-- name: placed
-- Of jobs that came from another store, before their parents or after them: who is awaited by now, and who has to be
-- told that a parent had ended where it came from.
WITH parents AS MATERIALIZED (
    SELECT DISTINCT d.parent AS id, d.tenant FROM {schema}.dependencies d
    WHERE d.child = ANY ($1::uuid[]) OR d.parent = ANY ($1::uuid[])
), awaited AS (
    UPDATE {schema}.jobs j SET awaited = true FROM parents p WHERE j.id = p.id AND j.tenant = p.tenant
), over AS (
    UPDATE {schema}.finished f SET awaited = true, prune_at = NULL FROM parents p
    WHERE f.id = p.id AND f.tenant = p.tenant
    RETURNING f.id, f.tenant, f.state
)
INSERT INTO {schema}.endings (parent, tenant, state)
SELECT o.id, o.tenant, o.state FROM over o
WHERE EXISTS (SELECT FROM {schema}.dependencies d WHERE d.parent = o.id AND d.tenant = o.tenant AND d.waits)

-- name: release_dependents
SELECT * FROM {schema}.release_dependents($1::bigint, $2::integer, true)

-- name: dependents
-- Children are never in batches while they wait; running ones may be.
SELECT d.child, j.state, d.unresolved AND j.state < 2
FROM {schema}.dependencies d
JOIN {schema}.all_jobs j ON j.id = d.child AND j.tenant = d.tenant
    AND (j.batch_ids IS NULL OR j.batch_ids @> ARRAY[d.child])
WHERE d.parent = $1::uuid AND ($2::text IS NULL OR d.tenant = $2)
ORDER BY j.number LIMIT $3::integer

-- name: count_dependents
SELECT count(*) FROM (
    SELECT FROM {schema}.dependencies d WHERE d.parent = $1::uuid AND ($2::text IS NULL OR d.tenant = $2)
    LIMIT $3::integer
) AS d

-- name: resolve_imported
-- Of jobs that came from another store, before their parents or after them: mark which have dependents by now, and note
-- parents that had ended where they came from.
WITH parents AS MATERIALIZED (
    SELECT DISTINCT d.parent AS id, d.tenant FROM {schema}.dependencies d
    WHERE d.child = ANY ($1::uuid[]) OR d.parent = ANY ($1::uuid[])
), flagged AS (
    UPDATE {schema}.jobs j SET has_dependents = true FROM parents p WHERE j.id = p.id AND j.tenant = p.tenant
), over AS (
    UPDATE {schema}.finished_jobs f SET has_dependents = true, prune_at = NULL FROM parents p
    WHERE f.id = p.id AND f.tenant = p.tenant
    RETURNING f.id, f.tenant, f.state
)
INSERT INTO {schema}.ended_parents (parent, tenant, state)
SELECT o.id, o.tenant, o.state FROM over o
WHERE EXISTS (SELECT FROM {schema}.dependencies d WHERE d.parent = o.id AND d.tenant = o.tenant AND d.unresolved)

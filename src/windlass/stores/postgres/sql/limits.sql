-- name: jobs_by_topic
-- Topics with jobs, and how many of those are pending or running. From counters, never from rows.
SELECT topic, sum(active) FROM (
    SELECT topic, waiting + ready + running AS active, waiting + ready + running + completed + failed + cancelled AS n
    FROM {schema}.counts
    UNION ALL
    SELECT topic, waiting + ready + running, waiting + ready + running + completed + failed + cancelled
    FROM {schema}.tally
) AS changes
GROUP BY topic HAVING sum(n) > 0

-- name: keys_taken
SELECT k.tenant, k.scope, k.key
FROM unnest($1::text[], $2::text[], $3::text[]) AS n(tenant, scope, key)
JOIN {schema}.keys k ON k.tenant = n.tenant AND k.scope = n.scope AND k.key = n.key

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

-- name: limits_as_text
-- Both of these, for connections of other people's: {text} is the keys in question, as JSON. Keys may have any characters,
-- and the connection any client_encoding.
SELECT encode(convert_to(CAST(json_build_object(
    'topics', (SELECT json_agg(json_build_array(t.topic, t.active)) FROM ({jobs_by_topic}) AS t(topic, active)),
    'taken', (
        SELECT json_agg(json_build_array(k.tenant, k.scope, k.key))
        FROM json_to_recordset(CAST(CAST({text} AS text) AS json)) AS n(tenant text, scope text, key text)
        JOIN {schema}.keys k ON k.tenant = n.tenant AND k.scope = n.scope AND k.key = n.key
    )
) AS text), 'UTF8'), 'base64')

-- name: keys_taken
SELECT k.tenant, k.scope, k.key
FROM unnest($1::text[], $2::text[], $3::text[]) AS n(tenant, scope, key)
JOIN {schema}.keys k ON k.tenant = n.tenant AND k.scope = n.scope AND k.key = n.key

-- name: jobs_by_topic
SELECT * FROM {schema}.jobs_by_topic()

-- name: keys_taken
SELECT k.tenant, k.scope, k.key
FROM unnest($1::text[], $2::text[], $3::text[]) AS n(tenant, scope, key)
JOIN {schema}.job_keys k ON k.tenant = n.tenant AND k.scope = n.scope AND k.key = n.key

-- Each statement returns one line for each problem. All of them see the same snapshot.

-- name: counters_add_up
WITH said AS (
    SELECT tenant, topic, task, waiting, ready, running, completed, failed, cancelled FROM {schema}.job_counts
    UNION ALL
    SELECT tenant, topic, task, waiting, ready, running, completed, failed, cancelled FROM {schema}.counter_deltas
), there AS (
    SELECT tenant, topic, task, state, count(*) AS n FROM {schema}.all_jobs GROUP BY tenant, topic, task, state
)
SELECT format('counter of tenant %s, topic %s, task %s, state %s says %s, there are %s',
              tenant, topic, task, state, sum(counted), sum(found))
FROM (
    SELECT tenant, topic, task, c.state, c.n AS counted, 0 AS found
    FROM said, LATERAL (VALUES (0, waiting), (1, ready), (2, running), (3, completed), (4, failed),
                               (5, cancelled)) AS c(state, n)
    UNION ALL
    SELECT tenant, topic, task, state, 0, n FROM there
) AS compared
GROUP BY tenant, topic, task, state
HAVING sum(counted) <> sum(found)

-- name: jobs_in_one_table
SELECT format('job %s is in more than one place', id) FROM {schema}.all_jobs GROUP BY id HAVING count(*) > 1

-- name: batches_consistent
SELECT format('batch %s: bits %s, %s ids, %s jobs', batch, held_mask, cardinality(ids), cardinality(jobs))
FROM {schema}.leased_batches
WHERE held_mask = 0 OR held_mask & 1 = 1 OR cardinality(ids) <> cardinality(jobs) OR cardinality(ids) > 63
    OR held_mask & ~(~(-1::bigint << cardinality(ids)) << 1) <> 0
    OR ids <> ARRAY(SELECT r.id FROM unnest(jobs) WITH ORDINALITY AS r ORDER BY r.ordinality)
    OR EXISTS (
        SELECT FROM unnest(jobs) AS r
        WHERE r.tenant <> leased_batches.tenant OR r.key IS NOT NULL OR r.lease_us IS NOT NULL OR r.state <> 1
            OR r.has_dependents
    )

-- name: numbers_differ
SELECT format('number %s was given to %s jobs', number, count(*)) FROM {schema}.all_jobs
GROUP BY number HAVING count(*) > 1

-- name: bodies_present
SELECT format('job %s has no body', number) FROM {schema}.all_jobs
WHERE NOT has_separate_body AND payload IS NULL AND raw IS NULL
UNION ALL
SELECT format('job %s has no body', j.number) FROM {schema}.all_jobs j
WHERE j.has_separate_body AND NOT EXISTS (
    SELECT FROM {schema}.bodies b WHERE b.id = j.id AND b.tenant = j.tenant
        AND (b.payload IS NOT NULL OR b.raw IS NOT NULL)
)

-- name: bodies_owned
SELECT format('body %s has no job', b.id)
FROM {schema}.bodies b
WHERE NOT EXISTS (
    SELECT FROM {schema}.all_jobs j WHERE j.id = b.id AND j.tenant = b.tenant AND j.has_separate_body
)

-- name: pruned_in_time
SELECT format('job %s would never be pruned', f.number)
FROM {schema}.finished_jobs f LEFT JOIN (SELECT unnest(ids) AS id FROM {schema}.retention_queue) AS p ON p.id = f.id
WHERE f.prune_at IS NOT NULL AND p.id IS NULL

-- name: retention_respected
-- Too early loses a job that is to be kept; too late, or never, keeps what is to go.
SELECT format('job %s is not to be pruned when its retention ends', number) FROM {schema}.finished_jobs
WHERE prune_at IS DISTINCT FROM CASE WHEN state = 4 AND buried OR has_dependents THEN NULL
                                     WHEN state = 4 THEN finished_at + retention_failed_us
                                     ELSE finished_at + retention_us END

-- name: results_of_completed
SELECT format('job %s has a result, but has not completed', number) FROM {schema}.finished_jobs
WHERE result IS NOT NULL AND state <> 3

-- name: progress_owned
SELECT format('progress %s has no job', p.id)
FROM {schema}.progress p
WHERE NOT EXISTS (SELECT FROM {schema}.all_jobs j WHERE j.id = p.id AND j.tenant = p.tenant)

-- name: attempts_owned
SELECT DISTINCT format('attempts of %s have no job', a.id)
FROM {schema}.attempts a
WHERE NOT EXISTS (SELECT FROM {schema}.all_jobs j WHERE j.id = a.id AND j.tenant = a.tenant)

-- name: steps_owned
SELECT DISTINCT format('steps of %s have no job of tenant %s', s.id, s.tenant)
FROM {schema}.steps s
WHERE NOT EXISTS (SELECT FROM {schema}.all_jobs j WHERE j.id = s.id AND j.tenant = s.tenant)

-- name: errors_summed_up
SELECT DISTINCT format('job %s has attempts, but no error', j.number)
FROM {schema}.attempts a JOIN {schema}.all_jobs j ON j.id = a.id
WHERE j.error_summary IS NULL

-- name: keys_owned
SELECT format('key %s of %s points to job %s, which does not hold it', k.key, k.scope, k.id)
FROM {schema}.job_keys k
LEFT JOIN {schema}.all_jobs j ON j.id = k.id AND j.key = k.key AND j.tenant = k.tenant
    AND k.scope = CASE j.task WHEN '' THEN j.topic ELSE j.task END
WHERE j.id IS NULL OR (j.key_until = 1 AND j.state > 2)

-- name: keys_held
SELECT format('job %s has lost its key %s', j.number, j.key)
FROM {schema}.all_jobs j
LEFT JOIN {schema}.job_keys k
    ON k.tenant = j.tenant AND k.scope = CASE j.task WHEN '' THEN j.topic ELSE j.task END
    AND k.key = j.key AND k.id = j.id
WHERE j.key IS NOT NULL AND k.id IS NULL AND NOT (j.key_until = 1 AND j.state > 2)

-- name: running_leased
-- A constraint says so, too; this is for tables whose constraint was dropped or disabled.
SELECT format('job %s runs without a lease', number) FROM {schema}.all_jobs WHERE state = 2 AND leased_until IS NULL

-- name: attempts_within_bounds
SELECT format('job %s had %s attempts of %s', number, attempt, max_attempts)
FROM {schema}.all_jobs WHERE attempt > max_attempts

-- name: sequences_ahead
-- A sequence is no part of the snapshot, but it only grows.
SELECT format('sequence %s is behind', name)
FROM (
    SELECT 'numbers' AS name, last_value,
           (SELECT max(number) FROM {schema}.all_jobs) AS used
    FROM {schema}.numbers
    UNION ALL
    SELECT 'fences', last_value,
           (SELECT max(fence) / 64 FROM {schema}.all_jobs)
    FROM {schema}.fences
) AS sequences
WHERE last_value < used

-- name: blocked_add_up
SELECT format('job %s says it waits for %s jobs, there are %s', number, blocked, n)
FROM (
    SELECT j.number, j.blocked, j.state,
           (SELECT count(*) FROM {schema}.dependencies d WHERE d.child = j.id AND d.tenant = j.tenant
           AND d.unresolved) AS n
    FROM {schema}.all_jobs j WHERE j.state < 3
) AS j
WHERE blocked <> n OR blocked > 0 AND state > 0

-- name: blocked_jobs_have_parents
SELECT format('job %s waits for a job that has ended or is gone', j.number)
FROM {schema}.jobs j JOIN {schema}.dependencies d ON d.child = j.id AND d.tenant = j.tenant AND d.unresolved
WHERE NOT EXISTS (SELECT FROM {schema}.jobs p WHERE p.id = d.parent AND p.tenant = d.tenant)
    AND NOT EXISTS (SELECT FROM {schema}.ended_parents e WHERE e.parent = d.parent AND e.tenant = d.tenant
        AND e.state IS NOT NULL)

-- name: parents_flagged
SELECT DISTINCT format('job %s does not know that others run after it', p.number)
FROM {schema}.dependencies d
JOIN (
    SELECT id, tenant, number, has_dependents FROM {schema}.jobs
    UNION ALL
    SELECT id, tenant, number, has_dependents AND prune_at IS NULL FROM {schema}.finished_jobs
) AS p ON p.id = d.parent AND p.tenant = d.tenant
WHERE NOT p.has_dependents

-- name: dependencies_owned
SELECT DISTINCT format('dependencies of %s have no job', d.child)
FROM {schema}.dependencies d
WHERE NOT EXISTS (SELECT FROM {schema}.all_jobs j WHERE j.id = d.child AND j.tenant = d.tenant)

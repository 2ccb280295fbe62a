-- The functions of the schema, as they are called. Types are named, because the driver asks for them beforehand.

-- name: enqueue
-- The order of the parameters is that of PARAMETERS in enqueue.py.
SELECT * FROM {schema}.enqueue(
    $1::bigint, $2::boolean, $3::boolean, $4::boolean, $5::uuid[], $6::text[], $7::text[], $8::text[],
    $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::integer[], $15::bigint[],
    $16::bigint[], $17::bigint[], $18::bigint[], $19::text[], $20::text[], $21::smallint[], $22::boolean[],
    $23::text[], $24::text[], $25::text[], $26::text[], $27::text[], $28::smallint[], $29::text[],
    $30::bytea[], $31::boolean[], $32::integer[], $33::uuid[], $34::boolean[], $35::text[], $36::text[]
)

-- name: enqueue_with
-- A document and jobs. No rows when the document was not written: the time the jobs are given comes from that, so the
-- function cannot be called before it or without it.
WITH written AS MATERIALIZED (
    SELECT o_version FROM {schema}.write_documents(
        $1::bigint, ARRAY[$37::text], ARRAY[$38::text], ARRAY[$39::bytea], ARRAY[$40::bigint], ARRAY[$41::bigint]
    )
)
SELECT e.* FROM written w, LATERAL {schema}.enqueue(
    CASE WHEN w.o_version > 0 THEN $1::bigint END, $2::boolean, $3::boolean, $4::boolean, $5::uuid[], $6::text[],
    $7::text[], $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::integer[],
    $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::text[], $20::text[], $21::smallint[],
    $22::boolean[], $23::text[], $24::text[], $25::text[], $26::text[], $27::text[], $28::smallint[], $29::text[],
    $30::bytea[], $31::boolean[], $32::integer[], $33::uuid[], $34::boolean[], $35::text[], $36::text[]
) AS e
WHERE w.o_version IS NOT NULL

-- name: enqueue_uniform
-- New jobs that differ in nothing but their ids and payloads, without keys, long bodies and expiry: what is enqueued
-- most, in one plain statement, which costs a third less than a call of the function. There is only one way to run it,
-- so its plan needs no pins. If one of the ids is taken by a job in a batch or a finished one, nothing is
-- written, and the function says what is wrong.
WITH moment AS MATERIALIZED (
    SELECT n.now, greatest(coalesce($4::bigint, n.now + $5::bigint), n.now) AS run_at
    FROM (SELECT {schema}.now_us($1::bigint) AS now OFFSET 0) AS n
    WHERE NOT EXISTS (
        SELECT FROM unnest($2::uuid[]) AS u(id),
            LATERAL (SELECT FROM {schema}.finished_jobs f WHERE f.id = u.id LIMIT 1) AS taken
    ) AND NOT {schema}.any_batched($2) AND NOT EXISTS (SELECT FROM {schema}.topics t WHERE t.fair AND t.topic = $6)
        -- A caller that sees a topic only once it has jobs there cannot tell whether it is fair.
        AND (
            NOT row_security_active('{schema}.topics')
            OR EXISTS (SELECT FROM {schema}.job_counts c WHERE c.topic = $6)
        )
), written AS (
    INSERT INTO {schema}.jobs (
        id, state, topic, task, tenant, priority, run_at, created_at, max_attempts, timeout_us, lease_us,
        retention_us, retention_failed_us, retry, correlation_id, user_id, service_id, headers, format, payload
    )
    SELECT u.id, (m.run_at <= m.now)::integer, $6::text, $7::text, $8::text, $9::bigint, m.run_at, m.now,
           $10::integer, $11::bigint, $12::bigint, $13::bigint, $14::bigint, $15::text, $16::text, $17::text,
           $18::text, $19::text, 0, u.payload
    FROM moment m, unnest($2, $3::text[]) AS u(id, payload)
    RETURNING number
), deltas AS (
    INSERT INTO {schema}.counter_deltas (minute, tenant, topic, task, waiting, ready, enqueued_events)
    SELECT {schema}.minute_of(m.now), $8, $6, $7, CASE WHEN m.run_at > m.now THEN cardinality($2) ELSE 0 END,
           CASE WHEN m.run_at > m.now THEN 0 ELSE cardinality($2) END, cardinality($2)
    FROM moment m
)
SELECT (SELECT array_agg(w.number) FROM written w), m.now, m.run_at FROM moment m

-- name: enqueue_json
SELECT {schema}.enqueue_json(CAST({text} AS text))

-- name: store_limits_json
SELECT {schema}.store_limits_json(CAST({text} AS text))

-- name: get_json
SELECT {schema}.get_json(CAST({text} AS text))

-- name: claim
SELECT * FROM {schema}.claim(
    $1::bigint, $2::text, $3::text[], $4::text[], $5::integer[], $6::bigint[], $7::bigint[], $8::bigint[],
    $9::integer, $10::bigint, $11::bigint, $12::boolean, $13::boolean, $14::text[], $15::bigint, $16::integer,
    $17::integer, $18::bigint, $19::boolean
)

-- name: run_maintenance
SELECT * FROM {schema}.run_maintenance($1::bigint, $2::bigint, $3::text[], $4::bigint)

-- name: claim_job
SELECT * FROM {schema}.claim_job($1::bigint, $2::uuid, $3::text, $4::text, $5::bigint, $6::bigint)

-- name: release_lost_grants
SELECT {schema}.release_lost_grants($1::bigint, $2::text, $3::bigint, $4::bigint, $5::text)

-- name: settle
SELECT * FROM {schema}.settle(
    $1::bigint, $2::uuid[], $3::bigint[], $4::smallint[], $5::bigint[], $6::text[], $7::text[], $8::text[],
    $9::bigint[], $10::bigint[], $11::text[]
)

-- name: complete_batched
SELECT * FROM {schema}.complete_batched(
    $1::bigint, $2::bigint[], $3::bigint[], $4::integer[], $5::uuid[], $6::bigint[], $7::text[]
)

-- name: find_settled
SELECT * FROM {schema}.find_settled($1::uuid[], $2::bigint[], $3::smallint[], $4::text[])

-- name: extend
SELECT * FROM {schema}.extend($1::bigint, $2::uuid[], $3::bigint[], $4::bigint)

-- name: touch
SELECT * FROM {schema}.touch_leases($1::bigint, $2::uuid[], $3::bigint[], $4::bigint)

-- name: mark_started
SELECT * FROM {schema}.mark_started($1::bigint, $2::uuid[], $3::bigint[], $4::bigint[], $5::boolean)

-- name: save_reports
SELECT * FROM {schema}.save_reports(
    $1::bigint, $2::uuid[], $3::bigint[], $4::double precision[], $5::text[], $6::text[], $7::text[], $8::integer[],
    $9::text[], $10::text[], $11::bigint[], $12::bigint[]
)

-- name: finished_steps
SELECT * FROM {schema}.finished_steps($1::bigint, $2::uuid, $3::bigint)

-- name: cancel_requests
SELECT * FROM {schema}.cancel_requests($1::bigint, $2::uuid[], $3::bigint[])

-- name: notify
-- A hint need not survive a crash, so this does not wait for the disk.
SELECT pg_notify(n.channel, n.message), set_config('synchronous_commit', 'off', true)
FROM unnest($1::text[], $2::text[]) AS n(channel, message)

-- name: transaction_states
-- What became of transactions; nothing is known of very old ones.
SELECT t.id, pg_xact_status(CAST(t.id AS xid8)) FROM unnest($1::text[]) AS t(id)

-- name: now
SELECT {schema}.now_us($1::bigint)

-- name: requeue
SELECT * FROM {schema}.requeue($1::bigint, $2::uuid[], $3::text)

-- name: kick
SELECT {schema}.kick_topic($1::bigint, $2::text, $3::integer, $4::integer, $5::text, $6::boolean)

-- name: kick_jobs
SELECT * FROM {schema}.kick_jobs($1::bigint, $2::uuid[], $3::text)

-- name: first_job_of_topic
-- Part of a statement that shows the job.
WITH head AS MATERIALIZED (
    SELECT {schema}.first_job_of_topic($3::bigint, $1::text, $4::text, $2::text, $5::integer, $6::integer) AS id
)

-- name: topic_depths
SELECT * FROM {schema}.topic_depths($1::bigint, $2::text[], $3::text, $4::bigint, $5::integer, $6::integer)

-- name: cancel
SELECT * FROM {schema}.cancel($1::bigint, $2::uuid[], $3::text, $4::text)

-- name: take_back
SELECT * FROM {schema}.take_back($1::bigint, $2::uuid[], $3::text, $4::text)

-- name: remove
SELECT * FROM {schema}.delete_jobs($1::bigint, $2::uuid[], $3::text)

-- name: rescue
SELECT * FROM {schema}.rescue($1::bigint, $2::integer, $3::bigint, $4::text[], $5::bigint)

-- name: prune
SELECT * FROM {schema}.prune($1::bigint, $2::integer, $3::integer, $4::bigint, $5::bigint)

-- name: roll_up_counters
SELECT {schema}.roll_up_counters()

-- name: pause
INSERT INTO {schema}.topics (topic, paused_until) VALUES ($1, $2)
ON CONFLICT (topic) DO UPDATE SET paused_until = excluded.paused_until

-- name: resume
WITH resumed AS (
    UPDATE {schema}.topics SET paused_until = NULL WHERE topic = $1 AND limits IS NOT NULL
)
DELETE FROM {schema}.topics WHERE topic = $1 AND limits IS NULL

-- name: set_limits
SELECT * FROM {schema}.set_limits($1::bigint, $2::text, $3::text, $4::integer)

-- name: limits
SELECT topic, limits::text FROM {schema}.topics WHERE limits IS NOT NULL ORDER BY topic COLLATE "C" LIMIT $1

-- name: blocked_by_limits
SELECT * FROM {schema}.blocked_by_limits($1::bigint, $2::integer)

-- name: delete_idle_meters
DELETE FROM {schema}.rate_meters
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.rate_meters WHERE used_until <= {schema}.now_us($1::bigint) ORDER BY used_until LIMIT $2
    FOR UPDATE SKIP LOCKED
))

-- name: delete_ended_pauses
-- Those that have ended. A row that says nothing would make every claim look at it.
DELETE FROM {schema}.topics WHERE limits IS NULL AND paused_until <= {schema}.now_us($1::bigint)

-- name: limited_topics
SELECT topic FROM {schema}.topics WHERE limits IS NOT NULL LIMIT $1

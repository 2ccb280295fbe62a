-- What the other functions are made of: time, buckets, the end of a job, rolling up counters.
--
-- Functions called by Tidewheel pin their plans and settings (SET … below each), so that neither statistics nor a
-- pooler that forgets session settings can change how they run. Those called only by other functions do not:
-- they run with their caller's settings.

-- The server's clock, or the one that was passed in (tests). Not now(): that is the start of the transaction, and
-- a lease granted after a wait for a lock would be short by the wait.
CREATE FUNCTION now_us(p_now bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    -- date_part counts in double precision, which is exact here and several times cheaper than extract's numeric.
    SELECT coalesce(p_now, (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
$$;

CREATE FUNCTION minute_of(p_now bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT p_now - p_now % 60000000 $$;

-- Where the buckets 1, 2, … of stores/reports.py begin: four an octave. width_bucket(x, this) is the bucket of x.
CREATE FUNCTION bucket_bounds() RETURNS bigint[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(CASE WHEN b < 4 THEN b ELSE (4 + b % 4) * (1::bigint << (b / 4 - 1)) END ORDER BY b)
    FROM generate_series(1, 200) AS b
$$;

-- Repeat a value that all jobs share, once for each of them.
CREATE FUNCTION repeat_single_value(p_values anyarray, p_number integer) RETURNS anyarray
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN cardinality(p_values) = 1 THEN array_fill(p_values[1], ARRAY[p_number]) ELSE p_values END;
END
$$;

-- Keep an error of a job; of many, the first and the last ten.
CREATE FUNCTION add_attempt(
    p_id uuid, p_tenant text, p_attempt integer, p_worker text, p_started_at bigint, p_ended_at bigint, p_error text
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_ordinal integer;
BEGIN
    SELECT coalesce(max(ordinal), 0) + 1 INTO v_ordinal FROM attempts WHERE id = p_id;
    INSERT INTO attempts (id, tenant, ordinal, attempt, worker, started_at, ended_at, error)
    VALUES (p_id, p_tenant, v_ordinal, p_attempt, p_worker, p_started_at, p_ended_at, p_error);
    IF v_ordinal > 20 THEN
        DELETE FROM attempts WHERE id = p_id AND ordinal = v_ordinal - 10;
    END IF;
END
$$;

-- End a job as failed (4) or cancelled (5), from wherever it is. Its row is locked by the caller, who may count it.
-- p_timeouts: how many of its leases have ended by time with it; p_priority: for when it comes back (NULL: as before).
CREATE FUNCTION finish(
    p_id uuid, p_state integer, p_now bigint, p_attempt integer, p_started_at bigint, p_summary text,
    p_buried boolean, p_counted boolean DEFAULT false, p_timeouts integer DEFAULT 0, p_priority bigint DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    job jobs;
    v_prune_at bigint;
BEGIN
    DELETE FROM jobs WHERE id = p_id RETURNING * INTO STRICT job;
    -- A job with dependents stays as long as they do.
    v_prune_at := CASE WHEN p_buried OR job.has_dependents THEN NULL
                       WHEN p_state = 4 THEN p_now + job.retention_failed_us
                       ELSE p_now + job.retention_us END;
    INSERT INTO finished_jobs (
        id, number, priority, run_at, created_at, finished_at, prune_at, fence, claimed_at, started_at,
        timeout_us, lease_us, retention_us, retention_failed_us, attempt, max_attempts,
        reserves, timeouts, releases, buries, kicks, touches, state, key_until, format, buried, has_dependents,
        has_separate_body,
        topic, task, tenant, worker, retry, key, correlation_id, user_id, service_id, limit_key, headers,
        error_summary, payload, raw
    ) VALUES (
        job.id, job.number, coalesce(p_priority, job.priority), job.run_at, job.created_at, p_now, v_prune_at,
        job.fence,
        job.claimed_at, coalesce(p_started_at, job.started_at),
        job.timeout_us, job.lease_us, job.retention_us, job.retention_failed_us, p_attempt, job.max_attempts,
        job.reserves, coalesce(job.timeouts + p_timeouts, nullif(p_timeouts, 0)), job.releases,
        CASE WHEN p_buried THEN coalesce(job.buries, 0) + 1 ELSE job.buries END, job.kicks, job.touches,
        p_state, job.key_until, job.format, p_buried, job.has_dependents, job.has_separate_body,
        job.topic, job.task, job.tenant, job.worker, job.retry, job.key, job.correlation_id, job.user_id,
        job.service_id, job.limit_key, job.headers, p_summary, job.payload, job.raw
    );
    IF job.has_dependents THEN
        INSERT INTO ended_parents (parent, tenant, state) VALUES (job.id, job.tenant, p_state);
        PERFORM set_config('tidewheel.parents_ended', 'true', true); -- for the caller, see 10_dependencies.sql
    END IF;
    IF job.key_until = 1 THEN
        DELETE FROM job_keys
        WHERE tenant = job.tenant AND scope = CASE job.task WHEN '' THEN job.topic ELSE job.task END
            AND key = job.key AND id = job.id;
    END IF;
    IF v_prune_at IS NOT NULL THEN
        INSERT INTO retention_queue (prune_at, number, ids) VALUES (v_prune_at, job.number, ARRAY[job.id]);
    END IF;
    IF NOT p_counted THEN
        INSERT INTO counter_deltas (minute, tenant, topic, task, waiting, ready, running, failed, cancelled,
            failed_events, cancelled_events)
        VALUES (
            minute_of(p_now), job.tenant, job.topic, job.task,
            -(job.state = 0)::integer, -(job.state = 1)::integer, -(job.state = 2)::integer,
            (p_state = 4)::integer, (p_state = 5)::integer, (p_state = 4)::integer, (p_state = 5)::integer
        );
    END IF;
END
$$;

-- Roll up what was appended to counter_deltas. One at a time is enough; a second caller has nothing to do.
CREATE FUNCTION roll_up_counters() RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_rows bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock('counter_deltas'::regclass::oid::bigint) THEN
        RETURN 0;
    END IF;
    WITH gone AS (
        -- Not all at once: what has gathered must never be more than one statement can do. But more than is appended
        -- from one time to the next (FOLD_AFTER in store.py, a few rows a job), or it would gather for good.
        DELETE FROM counter_deltas WHERE ctid = ANY (ARRAY(SELECT ctid FROM counter_deltas LIMIT 20000)) RETURNING *
    ), counted AS (
        INSERT INTO job_counts AS c (tenant, topic, task, waiting, ready, running, completed, failed, cancelled)
        SELECT tenant, topic, task, sum(waiting), sum(ready), sum(running), sum(completed), sum(failed),
               sum(cancelled)
        FROM gone GROUP BY tenant, topic, task
        ON CONFLICT (tenant, topic, task) DO UPDATE
        SET waiting = c.waiting + excluded.waiting, ready = c.ready + excluded.ready,
            running = c.running + excluded.running, completed = c.completed + excluded.completed,
            failed = c.failed + excluded.failed, cancelled = c.cancelled + excluded.cancelled
    ), happened AS (
        SELECT g.minute, m.metric, 0 AS bucket, m.n, m.total
        FROM (
            SELECT minute, sum(enqueued_events) AS enqueued, sum(completed_events) AS completed,
                   sum(failed_events) AS failed,
                   sum(cancelled_events) AS cancelled, sum(retried_events) AS retried, sum(run_us)::bigint AS run_us,
                   sum(wait_us)::bigint AS wait_us
            FROM gone GROUP BY minute
        ) AS g, LATERAL (
            -- The sum of all durations sits in the first bucket; a bucket's own share is of no interest.
            VALUES (0, enqueued, 0), (1, completed, 0), (2, failed, 0), (3, cancelled, 0), (4, retried, 0),
                   (5, 0, run_us), (6, 0, wait_us)
        ) AS m(metric, n, total)
        WHERE m.n > 0 OR m.total > 0
        UNION ALL
        SELECT minute, 5, bucket, count(*), 0 FROM (SELECT minute, unnest(run_buckets) AS bucket FROM gone) AS runs
        GROUP BY minute, bucket
        UNION ALL
        SELECT minute, 6, bucket, count(*), 0 FROM (SELECT minute, unnest(wait_buckets) AS bucket FROM gone) AS waits
        GROUP BY minute, bucket
    ), written AS (
        INSERT INTO minute_metrics AS m (minute, metric, bucket, n, total)
        SELECT minute, metric, bucket, sum(n), sum(total) FROM happened GROUP BY minute, metric, bucket
        ON CONFLICT (minute, metric, bucket) DO UPDATE
        SET n = m.n + excluded.n, total = m.total + excluded.total
    ), of_lanes AS (
        INSERT INTO lane_minute_metrics AS l (
            minute, topic, task, enqueued, completed, failed, cancelled, retried, runs, run_us, waits, wait_us
        )
        SELECT minute, topic, task, sum(enqueued_events), sum(completed_events), sum(failed_events),
               sum(cancelled_events),
               sum(retried_events), coalesce(sum(cardinality(run_buckets)), 0), coalesce(sum(run_us), 0)::bigint,
               coalesce(sum(cardinality(wait_buckets)), 0), coalesce(sum(wait_us), 0)::bigint
        FROM gone
        -- What only moved jobs between states, as every claim does, tells nothing here.
        WHERE enqueued_events > 0 OR completed_events > 0 OR failed_events > 0 OR cancelled_events > 0
            OR retried_events > 0
            OR wait_buckets IS NOT NULL
        GROUP BY minute, topic, task
        ON CONFLICT (minute, topic, task) DO UPDATE
        SET enqueued = l.enqueued + excluded.enqueued, completed = l.completed + excluded.completed,
            failed = l.failed + excluded.failed, cancelled = l.cancelled + excluded.cancelled,
            retried = l.retried + excluded.retried, runs = l.runs + excluded.runs, run_us = l.run_us + excluded.run_us,
            waits = l.waits + excluded.waits, wait_us = l.wait_us + excluded.wait_us
    )
    SELECT count(*) INTO v_rows FROM gone;
    RETURN v_rows;
END
$$
SET search_path FROM CURRENT SET jit = off SET lock_timeout = '10s';

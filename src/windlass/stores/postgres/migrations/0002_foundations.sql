-- What the other functions are made of: time, buckets, endings, folding.
--
-- Functions called by Windlass pin their plans and settings (SET … below each), so that neither statistics nor a
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

-- Where the buckets 1, 2, … of stores/histogram.py begin: four an octave. width_bucket(x, this) is the bucket of x.
CREATE FUNCTION bucket_bounds() RETURNS bigint[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(CASE WHEN b < 4 THEN b ELSE (4 + b % 4) * (1::bigint << (b / 4 - 1)) END ORDER BY b)
    FROM generate_series(1, 200) AS b
$$;

-- A value all jobs share, once for each of them.
CREATE FUNCTION spread(p_values anyarray, p_number integer) RETURNS anyarray
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN cardinality(p_values) = 1 THEN array_fill(p_values[1], ARRAY[p_number]) ELSE p_values END;
END
$$;

-- Keep an error of a job; of many, the first and the last ten.
CREATE FUNCTION add_attempt(
    p_id uuid, p_attempt integer, p_worker text, p_started_at bigint, p_ended_at bigint, p_error text
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_ordinal integer;
BEGIN
    SELECT coalesce(max(ordinal), 0) + 1 INTO v_ordinal FROM attempts WHERE id = p_id;
    INSERT INTO attempts (id, ordinal, attempt, worker, started_at, ended_at, error)
    VALUES (p_id, v_ordinal, p_attempt, p_worker, p_started_at, p_ended_at, p_error);
    IF v_ordinal > 20 THEN
        DELETE FROM attempts WHERE id = p_id AND ordinal = v_ordinal - 10;
    END IF;
END
$$;

-- End a job as failed (4) or cancelled (5), from wherever it is. Its row is locked by the caller.
CREATE FUNCTION finish(
    p_id uuid, p_state integer, p_now bigint, p_attempt integer, p_started_at bigint, p_summary text,
    p_buried boolean
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    job jobs;
    v_prune_at bigint;
BEGIN
    DELETE FROM jobs WHERE id = p_id RETURNING * INTO STRICT job;
    v_prune_at := CASE WHEN p_buried THEN NULL
                       WHEN p_state = 4 THEN p_now + job.retention_failed_us
                       ELSE p_now + job.retention_us END;
    INSERT INTO finished (
        id, number, priority, run_at, created_at, finished_at, prune_at, fence, claimed_at, started_at,
        timeout_us, lease_us, retention_us, retention_failed_us, attempt, max_attempts,
        reserves, timeouts, releases, buries, kicks, touches, state, key_until, format, buried, body_apart,
        topic, task, tenant, worker, retry, key, correlation_id, user_id, service_id, trace,
        error_summary, payload, raw
    ) VALUES (
        job.id, job.number, job.priority, job.run_at, job.created_at, p_now, v_prune_at, job.fence,
        job.claimed_at, coalesce(job.started_at, p_started_at),
        job.timeout_us, job.lease_us, job.retention_us, job.retention_failed_us, p_attempt, job.max_attempts,
        job.reserves, job.timeouts, job.releases,
        CASE WHEN p_buried THEN coalesce(job.buries, 0) + 1 ELSE job.buries END, job.kicks, job.touches,
        p_state, job.key_until, job.format, p_buried, job.body_apart,
        job.topic, job.task, job.tenant, job.worker, job.retry, job.key, job.correlation_id, job.user_id,
        job.service_id, job.trace, p_summary, job.payload, job.raw
    );
    IF job.key_until = 1 THEN
        DELETE FROM keys
        WHERE tenant = job.tenant AND scope = CASE job.task WHEN '' THEN job.topic ELSE job.task END
            AND key = job.key AND id = job.id;
    END IF;
    IF v_prune_at IS NOT NULL THEN
        INSERT INTO prunable (prune_at, number, ids) VALUES (v_prune_at, job.number, ARRAY[job.id]);
    END IF;
    INSERT INTO tally (minute, tenant, topic, task, waiting, ready, running, failed, cancelled, did_fail, did_cancel)
    VALUES (
        minute_of(p_now), job.tenant, job.topic, job.task,
        -(job.state = 0)::integer, -(job.state = 1)::integer, -(job.state = 2)::integer,
        (p_state = 4)::integer, (p_state = 5)::integer, (p_state = 4)::integer, (p_state = 5)::integer
    );
END
$$;

-- Add up what was appended. One at a time is enough; whoever comes second has nothing to do.
CREATE FUNCTION fold() RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_rows bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock('tally'::regclass::oid::bigint) THEN
        RETURN 0;
    END IF;
    WITH gone AS (
        -- Not all at once: what has gathered must never be more than one statement can do.
        DELETE FROM tally WHERE ctid = ANY (ARRAY(SELECT ctid FROM tally LIMIT 10000)) RETURNING *
    ), counted AS (
        INSERT INTO counts AS c (tenant, topic, task, waiting, ready, running, completed, failed, cancelled)
        SELECT tenant, topic, task, sum(waiting), sum(ready), sum(running), sum(completed), sum(failed),
               sum(cancelled)
        FROM gone GROUP BY tenant, topic, task
        ON CONFLICT (tenant, topic, task) DO UPDATE
        SET waiting = c.waiting + excluded.waiting, ready = c.ready + excluded.ready,
            running = c.running + excluded.running, completed = c.completed + excluded.completed,
            failed = c.failed + excluded.failed, cancelled = c.cancelled + excluded.cancelled
    ), happened AS (
        SELECT minute, topic, m.metric, 0 AS bucket, m.n, 0 AS total
        FROM gone, LATERAL (VALUES (0, did_enqueue), (1, did_complete), (2, did_fail), (3, did_cancel),
                                   (4, did_retry)) AS m(metric, n)
        WHERE m.n > 0
        UNION ALL
        SELECT minute, topic, 5, b, 1, 0 FROM gone, unnest(run_buckets) AS b
        UNION ALL
        SELECT minute, topic, 6, b, 1, 0 FROM gone, unnest(wait_buckets) AS b
        UNION ALL
        -- The sum of all durations sits in the first bucket; a bucket's own share is of no interest.
        SELECT minute, topic, 5, 0, 0, run_total FROM gone WHERE run_total > 0
        UNION ALL
        SELECT minute, topic, 6, 0, 0, wait_total FROM gone WHERE wait_total > 0
    ), written AS (
        INSERT INTO minutes AS m (minute, topic, metric, bucket, n, total)
        SELECT minute, topic, metric, bucket, sum(n), sum(total) FROM happened GROUP BY 1, 2, 3, 4
        ON CONFLICT (minute, topic, metric, bucket) DO UPDATE
        SET n = m.n + excluded.n, total = m.total + excluded.total
    )
    SELECT count(*) INTO v_rows FROM gone;
    RETURN v_rows;
END
$$
SET search_path FROM CURRENT SET jit = off SET lock_timeout = '10s';

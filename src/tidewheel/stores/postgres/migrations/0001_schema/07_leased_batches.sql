-- Jobs in leased batches: completing them, and giving them a row of their own again. Batches are locked in the order of
-- their numbers, and before rows of jobs.

-- Whether any job of these ids is in a batch.
CREATE FUNCTION any_batched(p_ids uuid[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM leased_batches p, unnest(p.ids) WITH ORDINALITY AS r(id, place)
        WHERE p.last_id >= (SELECT n.id FROM unnest(p_ids) AS n(id) ORDER BY n.id LIMIT 1)
            AND (p.held_mask >> r.place::integer) & 1 = 1 AND r.id = ANY (p_ids)
    );
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_bitmapscan = off;

-- Take jobs out of their batches; an empty batch is deleted. The caller has locked the batches, and the jobs are in
-- them.
CREATE FUNCTION remove_from_batches(p_batches bigint[], p_masks bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM leased_batches p USING unnest(p_batches, p_masks) AS t(batch, mask) WHERE p.batch = t.batch
        AND p.held_mask = t.mask;
    UPDATE leased_batches p SET held_mask = p.held_mask & ~t.mask FROM unnest(p_batches, p_masks) AS t(batch, mask)
        WHERE p.batch = t.batch;
END
$$;

-- Complete jobs in batches whose leases hold. p_batches and p_masks say which. What is known of each is in the other
-- arrays: of the job at some place in its batch at p_starts plus that place. Returns the jobs that were completed.
CREATE FUNCTION complete_batched(
    p_now bigint, p_batches bigint[], p_masks bigint[], p_starts integer[], p_ids uuid[], p_run_us bigint[],
    p_results text[]
) RETURNS TABLE (o_batch bigint, o_mask bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_bounds bigint[] := bucket_bounds();
    v_batches bigint[];
    v_masks bigint[];
    v_starts integer[];
BEGIN
    SELECT array_agg(t.batch), array_agg(m.mask), array_agg(t.start) INTO v_batches, v_masks, v_starts
    FROM unnest(p_batches, p_masks, p_starts) AS t(batch, mask, start),
        LATERAL (
            SELECT p.ids, p.held_mask & t.mask AS mask FROM leased_batches p
            WHERE p.batch = t.batch AND p.leased_until > now_us(p_now) FOR UPDATE
        ) AS l,
        LATERAL (
            SELECT bit_or(1::bigint << u.place::integer) AS mask FROM unnest(l.ids) WITH ORDINALITY AS u(id, place)
            WHERE (l.mask >> u.place::integer) & 1 = 1 AND u.id = p_ids[t.start + u.place]
        ) AS m
    WHERE m.mask IS NOT NULL;
    IF v_batches IS NULL THEN
        RETURN;
    END IF;
    v_now := now_us(p_now);
    WITH kept AS (
        INSERT INTO finished_jobs AS f (
            id, number, priority, run_at, created_at, finished_at, prune_at, fence, claimed_at, started_at,
            timeout_us, lease_us, retention_us, retention_failed_us, attempt, max_attempts,
            reserves, timeouts, releases, buries, kicks, touches, state, key_until, format, has_separate_body,
            topic, task, tenant, worker, retry, key, correlation_id, user_id, service_id, limit_key, headers,
            error_summary, payload, raw, result
        )
        SELECT r.id, r.number, r.priority, r.run_at, r.created_at, v_now, v_now + r.retention_us,
               t.batch * 64 + r.ordinality, p.claimed_at, v_now - p_run_us[t.start + r.ordinality],
               r.timeout_us, r.lease_us, r.retention_us, r.retention_failed_us,
               r.attempt + 1, r.max_attempts, r.reserves + 1, r.timeouts, r.releases, r.buries, r.kicks, r.touches,
               3, r.key_until, r.format, r.has_separate_body, r.topic, r.task, r.tenant, p.worker, r.retry, r.key,
               r.correlation_id, r.user_id, r.service_id, r.limit_key, r.headers, r.error_summary, r.payload, r.raw,
               p_results[t.start + r.ordinality]
        FROM unnest(v_batches, v_masks, v_starts) AS t(batch, mask, start), leased_batches p, unnest(p.jobs)
            WITH ORDINALITY AS r
        WHERE p.batch = t.batch AND (t.mask >> r.ordinality::integer) & 1 = 1
        RETURNING f.tenant, f.topic, f.task, f.started_at, f.run_at, f.retention_us, f.number, f.id
    ), deltas AS (
        INSERT INTO counter_deltas (
            minute, tenant, topic, task, running, completed, completed_events, run_us, run_buckets, wait_us,
            wait_buckets
        )
        SELECT minute_of(v_now), k.tenant, k.topic, k.task, -count(*), count(*), count(*),
               sum(v_now - k.started_at), array_agg(width_bucket(v_now - k.started_at, v_bounds)::smallint),
               sum(greatest(k.started_at - k.run_at, 0)),
               array_agg(width_bucket(greatest(k.started_at - k.run_at, 0), v_bounds)::smallint)
        FROM kept k GROUP BY k.tenant, k.topic, k.task
    )
    INSERT INTO retention_queue (prune_at, number, ids)
    SELECT v_now + k.retention_us, min(k.number), array_agg(k.id)
    FROM kept k WHERE k.retention_us IS NOT NULL GROUP BY k.retention_us;
    PERFORM remove_from_batches(v_batches, v_masks);
    RETURN QUERY SELECT * FROM unnest(v_batches, v_masks);
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- Give jobs in batches a row of their own, as if they had been claimed that way. The caller has locked the batches;
-- NULL stands for none.
CREATE FUNCTION unbatch(p_batches bigint[], p_masks bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF p_batches IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO jobs (
        id, number, priority, run_at, created_at, fence, leased_until, claimed_at, expires_at, timeout_us, lease_us,
        retention_us, retention_failed_us, store_handle, attempt, max_attempts, blocked, reserves, timeouts, releases,
        buries, kicks, touches, state, key_until, format, suspect, counts_if_lost, cancel_requested, has_separate_body,
        topic, task, tenant,
        worker, retry, key, correlation_id, user_id, service_id, limit_key, headers, error_summary, payload, raw
    )
    SELECT r.id, r.number, r.priority, r.run_at, r.created_at, p.batch * 64 + r.ordinality, p.leased_until,
           p.claimed_at, r.expires_at, r.timeout_us, r.lease_us, r.retention_us, r.retention_failed_us, p.store_handle,
           r.attempt + 1, r.max_attempts, r.blocked, r.reserves + 1, r.timeouts, r.releases, r.buries, r.kicks,
           r.touches, 2, r.key_until, r.format, r.suspect, false, r.cancel_requested, r.has_separate_body, r.topic,
           r.task, r.tenant, p.worker, r.retry, r.key, r.correlation_id, r.user_id, r.service_id, r.limit_key,
           r.headers, r.error_summary, r.payload,
           r.raw
    FROM unnest(p_batches, p_masks) AS t(batch, mask), leased_batches p, unnest(p.jobs) WITH ORDINALITY AS r
    WHERE p.batch = t.batch AND (t.mask >> r.ordinality::integer) & 1 = 1;
    PERFORM remove_from_batches(p_batches, p_masks);
END
$$;

-- Those of these leases that are in batches.
CREATE FUNCTION unbatch_leases(p_fences bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM unbatch(array_agg(t.batch), array_agg(l.mask))
    FROM (
            SELECT f / 64 AS batch, bit_or(1::bigint << (f % 64)::integer) AS mask FROM unnest(p_fences) AS f
            WHERE f % 64 > 0 GROUP BY 1 ORDER BY 1
        ) AS t,
        LATERAL (SELECT p.held_mask & t.mask AS mask FROM leased_batches p WHERE p.batch = t.batch FOR UPDATE) AS l
    WHERE l.mask <> 0;
END
$$;

-- Those of these jobs that are in batches, each of the tenant at the same position (NULL: of any).
CREATE FUNCTION unbatch_jobs(p_ids uuid[], p_tenants text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM unbatch(array_agg(l.batch), array_agg(l.mask))
    FROM (
        SELECT p.batch, p.held_mask & m.mask AS mask
        FROM leased_batches p, LATERAL (
            SELECT bit_or(1::bigint << r.place::integer) AS mask
            FROM unnest(p.ids) WITH ORDINALITY AS r(id, place)
                JOIN unnest(p_ids, p_tenants) AS n(id, tenant) ON n.id = r.id AND coalesce(n.tenant = p.tenant, true)
        ) AS m
        WHERE p.batch > 0 AND p.ids && p_ids AND p.held_mask & m.mask <> 0
        ORDER BY p.batch FOR UPDATE OF p
    ) AS l;
END
$$;

-- Batches whose lease has ended, up to p_limit jobs, except those that another transaction has locked.
CREATE FUNCTION unbatch_expired(p_now bigint, p_limit integer, p_maintained_until bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM unbatch(array_agg(l.batch), array_agg(l.held_mask))
    FROM (
        SELECT p.batch, p.held_mask FROM leased_batches p
        WHERE p.leased_until <= p_now AND p.leased_until >= coalesce(p_maintained_until, 0)
        ORDER BY p.leased_until LIMIT (p_limit + 62) / 63
        FOR UPDATE SKIP LOCKED
    ) AS l;
END
$$;

-- Batches granted to a worker through a handle of the store, after a fence.
CREATE FUNCTION unbatch_granted(p_worker text, p_store_handle bigint, p_after bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM unbatch(array_agg(l.batch), array_agg(l.held_mask))
    FROM (
        SELECT p.batch, p.held_mask FROM leased_batches p
        WHERE p.batch > p_after / 64 AND p.store_handle = p_store_handle AND p.worker = p_worker
        ORDER BY p.batch FOR UPDATE
    ) AS l;
END
$$;

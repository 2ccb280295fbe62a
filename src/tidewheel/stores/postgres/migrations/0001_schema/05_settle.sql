-- Everything done under leases. A lease is an id and a fence; it holds while its job runs under that fence and its end
-- has not come. Each function returns the positions of the leases that held.
--
-- Callers send leases in the order of their ids, and plans are pinned to go through them in that order: two
-- functions that lock the same rows in different orders would deadlock.
-- The time is asked for each row, not once: a row may have been waited for.
-- An id is compared as j.id = ANY (ARRAY[e.id]). To a planner that believes the table empty, j.id = e.id may mean to
-- read all of it in the order of its ids and to look for each among the leases; this can only mean a look-up.
-- Jobs in batches get rows of their own first; nearly all of them are completed before that (complete_batched).
-- Only a running job has leased_until. Saying state = 2 as well would let a planner without statistics read the index
-- of all leases instead of looking up ids.

-- End leases. p_kinds: 0 completed, 1 failed, 2 buried, 3 cancelled, 4 retried, 5 released, 6 released and not counted
-- as that, 7 given back by a worker that never had it; a single one is that of all. NULL stands for an array of NULLs.
-- Where jobs run after those that ended, rows at position 0 follow, with topics in which some became ready, and one at
-- -1 where there is more to do about them (release_dependents).
CREATE FUNCTION settle(
    p_now bigint, p_ids uuid[], p_fences bigint[], p_kinds smallint[], p_run_us bigint[], p_results text[],
    p_errors text[], p_summaries text[], p_delays_us bigint[], p_priorities bigint[], p_messages text[]
) RETURNS TABLE (o_position integer, o_topic text)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_bounds bigint[] := bucket_bounds();
    v_held integer[];
    v_has_dependents boolean;
    v_unfinished boolean;
    v_topics text[];
    v_job record;
BEGIN
    PERFORM unbatch_leases(p_fences);
    p_kinds := repeat_single_value(p_kinds, cardinality(p_ids));
    IF cardinality(p_ids) > 1 AND 0 <> ANY (p_kinds) THEN
        -- Below, completed jobs come before the others. A call that extends the same leases locks all in one order. And
        -- the others end one by one, with their keys: a transaction that waits for such a key may have locked the next
        -- job.
        PERFORM FROM jobs WHERE id = ANY (p_ids) ORDER BY id FOR UPDATE;
    END IF;
    -- Jobs that completed, which is nearly all of them, in one go.
    v_now := now_us(p_now);
    WITH gone AS (
        DELETE FROM jobs j
        USING unnest(p_ids, p_fences, p_kinds, p_run_us, p_results) WITH ORDINALITY
            AS e(id, fence, kind, run_us, result, position)
        WHERE e.kind = 0 AND j.id = ANY (ARRAY[e.id]) AND j.fence = e.fence AND j.leased_until > now_us(p_now)
        -- What is counted comes first: a row is taken apart only as far as it is needed.
        RETURNING e.position, e.run_us, coalesce(j.started_at, v_now - e.run_us) AS began_at, j.run_at, j.tenant,
                  j.topic, j.task, j.id, j.number, j.retention_us, j.key_until, j.priority, j.created_at, j.fence,
                  j.claimed_at, j.timeout_us, j.lease_us, j.retention_failed_us, j.attempt, j.max_attempts,
                  j.reserves, j.timeouts, j.releases, j.buries, j.kicks, j.touches, j.format, j.has_separate_body,
                  j.worker, j.retry, j.key, j.correlation_id, j.user_id, j.service_id, j.limit_key, j.headers,
                  j.error_summary,
                  j.payload, j.raw, e.result, j.has_dependents
    ), kept AS (
        INSERT INTO finished_jobs (
            id, number, priority, run_at, created_at, finished_at, prune_at, fence, claimed_at, started_at,
            timeout_us, lease_us, retention_us, retention_failed_us, attempt, max_attempts,
            reserves, timeouts, releases, buries, kicks, touches, state, key_until, format, has_dependents,
            has_separate_body,
            topic, task, tenant, worker, retry, key, correlation_id, user_id, service_id, limit_key, headers,
            error_summary, payload, raw, result
        )
        SELECT g.id, g.number, g.priority, g.run_at, g.created_at, v_now,
               CASE WHEN NOT g.has_dependents THEN v_now + g.retention_us END, g.fence,
               g.claimed_at, g.began_at, g.timeout_us, g.lease_us, g.retention_us, g.retention_failed_us,
               g.attempt, g.max_attempts, g.reserves, g.timeouts, g.releases, g.buries, g.kicks, g.touches,
               3, g.key_until, g.format, g.has_dependents, g.has_separate_body, g.topic, g.task, g.tenant, g.worker,
               g.retry, g.key,
               g.correlation_id, g.user_id, g.service_id, g.limit_key, g.headers, g.error_summary, g.payload, g.raw,
               g.result
        FROM gone g
    ), deltas AS (
        INSERT INTO counter_deltas (
            minute, tenant, topic, task, running, completed, completed_events, run_us, run_buckets, wait_us,
            wait_buckets
        )
        SELECT minute_of(v_now), g.tenant, g.topic, g.task, -count(*), count(*), count(*),
               sum(greatest(g.run_us, 0)),
               array_agg(width_bucket(greatest(g.run_us, 0), v_bounds)::smallint)
                   FILTER (WHERE g.run_us IS NOT NULL),
               sum(greatest(g.began_at - g.run_at, 0)) FILTER (WHERE g.run_us IS NOT NULL),
               array_agg(width_bucket(greatest(g.began_at - g.run_at, 0), v_bounds)::smallint)
                   FILTER (WHERE g.run_us IS NOT NULL)
        FROM gone g GROUP BY g.tenant, g.topic, g.task
    ), to_prune AS (
        INSERT INTO retention_queue (prune_at, number, ids)
        SELECT v_now + g.retention_us, min(g.number), array_agg(g.id)
        FROM gone g WHERE g.retention_us IS NOT NULL AND NOT g.has_dependents GROUP BY g.retention_us
    ), ended AS (
        INSERT INTO ended_parents (parent, tenant, state) SELECT g.id, g.tenant, 3 FROM gone g WHERE g.has_dependents
    ), unlocked AS (
        DELETE FROM job_keys k USING gone g
        WHERE g.key_until = 1 AND k.tenant = ANY (ARRAY[g.tenant]) AND k.key = ANY (ARRAY[g.key])
            AND k.scope = ANY (ARRAY[CASE g.task WHEN '' THEN g.topic ELSE g.task END]) AND k.id = g.id
    )
    SELECT array_agg(g.position::integer), bool_or(g.has_dependents) INTO v_held, v_has_dependents FROM gone g;
    RETURN QUERY SELECT u.position, NULL::text FROM unnest(v_held) AS u(position);
    IF NOT v_has_dependents AND cardinality(v_held) = cardinality(p_ids) THEN
        RETURN;
    END IF;

    FOR v_job IN
        SELECT e.position, e.kind, e.run_us, e.error, e.summary, e.delay_us, e.priority AS new_priority,
               j.id, j.topic, j.task, j.tenant, j.run_at, j.attempt, j.max_attempts, j.worker, j.started_at,
               j.cancel_requested
        FROM unnest(p_ids, p_fences, p_kinds, p_run_us, p_errors, p_summaries, p_delays_us, p_priorities)
                WITH ORDINALITY AS e(id, fence, kind, run_us, error, summary, delay_us, priority, position)
            JOIN jobs j ON j.id = ANY (ARRAY[e.id])
        WHERE e.kind > 0 AND j.fence = e.fence AND j.leased_until > now_us(p_now)
        FOR UPDATE OF j
    LOOP
        v_now := now_us(p_now);
        v_job.started_at := coalesce(v_job.started_at, v_now - v_job.run_us); -- one that was recorded stands
        IF v_job.run_us IS NOT NULL THEN
            INSERT INTO counter_deltas (minute, tenant, topic, task, run_us, run_buckets, wait_us, wait_buckets)
            VALUES (
                minute_of(v_now), v_job.tenant, v_job.topic, v_job.task,
                CASE WHEN v_job.kind IN (1, 2, 4) THEN greatest(v_job.run_us, 0) END,
                CASE WHEN v_job.kind IN (1, 2, 4)
                     THEN ARRAY[width_bucket(greatest(v_job.run_us, 0), v_bounds)::smallint] END,
                greatest(v_job.started_at - v_job.run_at, 0),
                ARRAY[width_bucket(greatest(v_job.started_at - v_job.run_at, 0), v_bounds)::smallint]
            );
        END IF;
        IF v_job.kind < 5 THEN
            PERFORM add_attempt(v_job.id, v_job.tenant, v_job.attempt, v_job.worker, v_job.started_at, v_now,
                                v_job.error);
        END IF;
        IF v_job.kind < 3 THEN
            PERFORM finish(v_job.id, 4, v_now, v_job.attempt, v_job.started_at, v_job.summary, v_job.kind = 2,
                           p_priority => v_job.new_priority);
        ELSIF v_job.kind = 3 THEN
            PERFORM finish(v_job.id, 5, v_now, v_job.attempt, v_job.started_at, v_job.summary, false);
        ELSIF v_job.cancel_requested THEN
            -- A run that was given back is not an attempt, also when the job ends with it.
            PERFORM finish(v_job.id, 5, v_now, v_job.attempt - (v_job.kind >= 5)::integer, v_job.started_at,
                           p_messages[3], false);
        ELSIF v_job.kind = 4 AND v_job.attempt >= v_job.max_attempts THEN
            PERFORM finish(v_job.id, 4, v_now, v_job.attempt, v_job.started_at, v_job.summary, false);
        ELSE
            -- Given back at once, the job has been due since it was, and its wait is measured from there.
            -- suspect stays after a release: a job given back unstarted has proved nothing.
            UPDATE jobs
            SET state = (v_job.delay_us <= 0)::integer,
                run_at = CASE WHEN v_job.delay_us > 0 THEN v_now + v_job.delay_us ELSE least(run_at, v_now) END,
                leased_until = NULL, worker = NULL, claimed_at = NULL, started_at = NULL, counts_if_lost = false,
                attempt = attempt - (v_job.kind >= 5)::integer,
                releases = CASE WHEN v_job.kind = 5 THEN coalesce(releases, 0) + 1 ELSE releases END,
                reserves = reserves - (v_job.kind = 7)::integer,
                priority = CASE WHEN v_job.kind >= 5 THEN coalesce(v_job.new_priority, priority) ELSE priority END,
                suspect = suspect AND v_job.kind >= 5,
                error_summary = CASE WHEN v_job.kind = 4 THEN v_job.summary ELSE error_summary END
            WHERE id = v_job.id;
            INSERT INTO counter_deltas (minute, tenant, topic, task, waiting, ready, running, retried_events)
            VALUES (minute_of(v_now), v_job.tenant, v_job.topic, v_job.task, (v_job.delay_us > 0)::integer,
                    (v_job.delay_us <= 0)::integer, -1, (v_job.kind = 4)::integer);
        END IF;
        o_position := v_job.position;
        RETURN NEXT;
    END LOOP;
    IF v_has_dependents OR current_setting('tidewheel.parents_ended', true) = 'true' THEN
        SELECT r.topics, r.unfinished INTO v_topics, v_unfinished FROM release_dependents(p_now, 1000, false) AS r;
        RETURN QUERY SELECT 0, t.topic FROM unnest(v_topics) AS t(topic);
        IF v_unfinished THEN
            RETURN QUERY SELECT -1, NULL::text;
        END IF;
    END IF;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

CREATE FUNCTION extend(p_now bigint, p_ids uuid[], p_fences bigint[], p_lease_us bigint) RETURNS SETOF integer
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM unbatch_leases(p_fences);
    RETURN QUERY
        UPDATE jobs j SET leased_until = now_us(p_now) + p_lease_us
        FROM unnest(p_ids, p_fences) WITH ORDINALITY AS e(id, fence, position)
        WHERE j.id = ANY (ARRAY[e.id]) AND j.fence = e.fence AND j.leased_until > now_us(p_now)
        RETURNING e.position::integer;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- Record that handlers began, p_run_us ago each. The first record of a start stands. p_alone: nothing else runs in
-- their worker, so a lost lease counts as an attempt.
CREATE FUNCTION mark_started(
    p_now bigint, p_ids uuid[], p_fences bigint[], p_run_us bigint[], p_alone boolean
) RETURNS SETOF integer
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM unbatch_leases(p_fences);
    RETURN QUERY
        UPDATE jobs j
        SET started_at = coalesce(j.started_at, now_us(p_now) - e.run_us), counts_if_lost = j.counts_if_lost OR p_alone
        FROM unnest(p_ids, p_fences, p_run_us) WITH ORDINALITY AS e(id, fence, run_us, position)
        WHERE j.id = ANY (ARRAY[e.id]) AND j.fence = e.fence AND j.leased_until > now_us(p_now)
        RETURNING e.position::integer;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- Remember progress (where p_percents is given), checkpoints (where p_checkpoints is) and finished steps: those of the
-- lease at p_step_leases of the other arrays, in their order; NULL when there are none. A job that reports has started,
-- p_run_us ago.
CREATE FUNCTION save_reports(
    p_now bigint, p_ids uuid[], p_fences bigint[], p_percents double precision[], p_messages text[],
    p_stages text[], p_checkpoints text[], p_step_leases integer[], p_step_names text[], p_step_outputs text[],
    p_step_run_us bigint[], p_run_us bigint[]
) RETURNS SETOF integer
LANGUAGE plpgsql AS $$
DECLARE
    v_report record;
    v_now bigint;
BEGIN
    PERFORM unbatch_leases(p_fences);
    FOR v_report IN
        SELECT e.*, j.attempt, j.worker, j.tenant, j.started_at
        FROM unnest(p_ids, p_fences, p_percents, p_messages, p_stages, p_checkpoints, p_run_us) WITH ORDINALITY
                AS e(id, fence, percent, message, stage, checkpoint, run_us, position)
            JOIN jobs j ON j.id = ANY (ARRAY[e.id])
        WHERE j.fence = e.fence AND j.leased_until > now_us(p_now)
        -- So that no other session ends the lease before this is written, and steps that end together get different
        -- ordinals.
        FOR NO KEY UPDATE OF j
    LOOP
        IF v_report.started_at IS NULL THEN
            UPDATE jobs SET started_at = now_us(p_now) - v_report.run_us WHERE id = v_report.id;
        END IF;
        IF v_report.percent IS NOT NULL THEN
            INSERT INTO progress AS p (id, tenant, percent, message, stage, updated_at)
            VALUES (v_report.id, v_report.tenant, v_report.percent, v_report.message, v_report.stage, now_us(p_now))
            ON CONFLICT (id) DO UPDATE
            SET percent = excluded.percent, message = excluded.message, stage = excluded.stage,
                updated_at = excluded.updated_at;
        END IF;
        IF v_report.checkpoint IS NOT NULL THEN
            INSERT INTO progress AS p (id, tenant, checkpoint)
            VALUES (v_report.id, v_report.tenant, v_report.checkpoint)
            ON CONFLICT (id) DO UPDATE SET checkpoint = excluded.checkpoint;
        END IF;
        IF p_step_leases IS NOT NULL THEN
            v_now := now_us(p_now);
            -- A name that is there already was reported before, and the answer was lost.
            INSERT INTO steps (id, ordinal, attempt, started_at, finished_at, tenant, worker, name, output)
            SELECT v_report.id, (SELECT coalesce(max(b.ordinal), 0) FROM steps b WHERE b.id = v_report.id) + s.position,
                   v_report.attempt, v_now - s.run_us, v_now, v_report.tenant, v_report.worker, s.name, s.output
            FROM unnest(p_step_leases, p_step_names, p_step_outputs, p_step_run_us) WITH ORDINALITY
                AS s(lease, name, output, run_us, position)
            WHERE s.lease = v_report.position
            ON CONFLICT (id, name) DO NOTHING;
        END IF;
        RETURN NEXT v_report.position::integer;
    END LOOP;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- The finished steps of a job, in order, as one row; none when the lease does not hold. A job in a batch stays there:
-- most jobs that are asked about have no steps yet, and complete next.
CREATE FUNCTION finished_steps(p_now bigint, p_id uuid, p_fence bigint)
RETURNS TABLE (
    o_names text[], o_outputs text[], o_attempts integer[], o_workers text[], o_started bigint[], o_finished bigint[]
)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF EXISTS (SELECT FROM jobs j WHERE j.id = p_id AND j.fence = p_fence AND j.leased_until > now_us(p_now))
        OR EXISTS (
            SELECT FROM leased_batches p
            WHERE p.batch = p_fence / 64 AND p_fence % 64 > 0 AND (p.held_mask >> (p_fence % 64)::integer) & 1 = 1
                AND p.ids[(p_fence % 64)::integer] = p_id AND p.leased_until > now_us(p_now)
        )
    THEN
        RETURN QUERY
            SELECT array_agg(s.name), array_agg(s.output), array_agg(s.attempt), array_agg(s.worker),
                   array_agg(s.started_at), array_agg(s.finished_at)
            FROM (SELECT * FROM steps b WHERE b.id = p_id ORDER BY b.ordinal) AS s;
    END IF;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- Which of these leases hold and have been asked to cancel. A job in a batch has no cancel request.
CREATE FUNCTION cancel_requests(p_now bigint, p_ids uuid[], p_fences bigint[]) RETURNS SETOF integer
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
        SELECT e.position::integer
        FROM unnest(p_ids, p_fences) WITH ORDINALITY AS e(id, fence, position)
            JOIN jobs j ON j.id = ANY (ARRAY[e.id])
        WHERE j.fence = e.fence AND j.cancel_requested AND j.leased_until > now_us(p_now);
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- Which of these settlements were made, for callers whose reply was lost. The fence stays with the job until it is
-- claimed again, also when a rescue ended the lease; what tells them apart is how the job ended.
CREATE FUNCTION find_settled(p_ids uuid[], p_fences bigint[], p_kinds smallint[], p_summaries text[])
RETURNS SETOF integer
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
        SELECT e.position::integer
        FROM unnest(p_ids, p_fences, p_kinds, p_summaries) WITH ORDINALITY AS e(id, fence, kind, summary, position)
        WHERE EXISTS (
            SELECT FROM finished_jobs f
            WHERE f.id = e.id AND f.fence = e.fence AND CASE
                WHEN e.kind = 0 THEN f.state = 3
                WHEN e.kind < 3 THEN f.state = 4 AND f.error_summary = e.summary
                WHEN e.kind = 3 THEN f.state = 5 AND f.error_summary = e.summary
                -- Given back with a cancel request: cancelled, whoever did it.
                ELSE f.state = 5 OR f.state = 4 AND f.error_summary = e.summary END
        ) OR EXISTS (
            -- Waiting again: by this settlement, or requeued since. A rescued job says that its worker was lost, or is
            -- suspect; for one that was to be given back uncounted that is near enough.
            SELECT FROM jobs j
            WHERE j.id = e.id AND j.fence = e.fence AND j.state < 2
                AND (e.kind >= 5 OR e.kind > 0 AND j.error_summary = e.summary AND NOT j.suspect)
        );
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

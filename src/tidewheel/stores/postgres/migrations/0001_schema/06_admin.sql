-- What operators do to jobs. Each returns one verdict for each job:
--   done, requested, not_found, wrong_state, key_taken (model.Verdict)
-- and with the position of its id, because jobs are locked in the order of their ids, whatever the order they were
-- named in: two calls that lock the same jobs in different orders would deadlock. The same id may be named twice, and
-- the first changes what the second finds; hence one after another.
-- A job moves from one table to the other, and each statement sees the tables at a moment of its own. Only what was
-- locked may be relied on; what was found in neither table may have moved, and is looked for in both at once.

-- The state of a job wherever it is at this moment, for which it must not be STABLE; NULL if there is none.
CREATE FUNCTION state_of(p_id uuid, p_tenant text) RETURNS smallint
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT a.state FROM all_jobs a
        WHERE a.id = p_id AND coalesce(a.tenant = p_tenant, true)
            AND (a.batch_ids IS NULL OR a.batch_ids @> ARRAY[p_id])
    );
END
$$;

-- Count jobs that went from one state to another, or were removed (NULL). All at once, a row for each lane: a row for
-- each job would slow down readers of the counters, and stay there until it is vacuumed.
CREATE FUNCTION count_transitions(
    p_now bigint, p_tenants text[], p_topics text[], p_tasks text[], p_before smallint[], p_after integer
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO counter_deltas (minute, tenant, topic, task, waiting, ready, completed, failed, cancelled,
        cancelled_events)
    SELECT minute_of(p_now), m.tenant, m.topic, m.task, -count(*) FILTER (WHERE m.before = 0),
           count(*) FILTER (WHERE p_after = 1) - count(*) FILTER (WHERE m.before = 1),
           -count(*) FILTER (WHERE m.before = 3), -count(*) FILTER (WHERE m.before = 4),
           count(*) FILTER (WHERE p_after = 5) - count(*) FILTER (WHERE m.before = 5),
           count(*) FILTER (WHERE p_after = 5)
    FROM unnest(p_tenants, p_topics, p_tasks, p_before) AS m(tenant, topic, task, before)
    GROUP BY m.tenant, m.topic, m.task;
END
$$;

-- Lock the notes about ended parents among these jobs, which may come back: dependents that were not released yet go on
-- waiting. Called before anything else is locked: release_dependents locks in this order, too.
CREATE FUNCTION lock_ended_parents(p_ids uuid[], p_tenant text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM ended_parents e
    WHERE e.parent = ANY (p_ids) AND e.state IS NOT NULL AND coalesce(e.tenant = p_tenant, true)
    ORDER BY e.parent FOR UPDATE;
END
$$;

-- p_kicks: how many to count for each; p_failed_only: cancelled jobs stay.
CREATE FUNCTION requeue(
    p_now bigint, p_ids uuid[], p_tenant text, p_kicks integer DEFAULT 1, p_failed_only boolean DEFAULT false
)
RETURNS TABLE (o_position integer, o_verdict text, o_topic text)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_us(p_now);
    v_id uuid;
    v_locked uuid[];
    v_job finished_jobs;
    v_holder uuid;
    v_scope text;
    v_related uuid[]; -- those that run after others
    v_back uuid[] := '{}'; -- those that came back
    v_blocked integer;
    v_tenants text[] := '{}';
    v_topics text[] := '{}';
    v_tasks text[] := '{}';
    v_before smallint[] := '{}';
BEGIN
    PERFORM lock_ended_parents(p_ids, p_tenant);
    v_related := ARRAY(SELECT DISTINCT d.child FROM dependencies d WHERE d.child = ANY (p_ids));
    IF v_related = '{}' THEN
        v_locked := ARRAY(
            SELECT id FROM finished_jobs WHERE id = ANY (p_ids) AND coalesce(tenant = p_tenant, true)
            ORDER BY id FOR UPDATE
        );
    ELSE
        -- What they run after must not end before they wait for it again. Both are locked in one order, as by a call
        -- that deletes a job and its parents.
        v_locked := '{}';
        FOR v_id IN
            SELECT n.id FROM unnest(p_ids) AS n(id)
            UNION
            SELECT d.parent FROM dependencies d JOIN jobs p ON p.id = ANY (ARRAY[d.parent]) AND p.tenant = d.tenant
            WHERE d.child = ANY (v_related)
            ORDER BY 1
        LOOP
            PERFORM FROM jobs WHERE id = v_id FOR KEY SHARE;
            PERFORM FROM finished_jobs WHERE id = v_id AND id = ANY (p_ids)
                AND coalesce(tenant = p_tenant, true) FOR UPDATE;
            IF FOUND THEN
                v_locked := array_append(v_locked, v_id);
            END IF;
        END LOOP;
    END IF;
    -- Keys are taken in their order, as enqueue does.
    FOR o_position, v_id IN
        SELECT n.position, n.id FROM unnest(p_ids) WITH ORDINALITY AS n(id, position)
            LEFT JOIN finished_jobs f ON f.id = ANY (ARRAY[n.id])
        ORDER BY f.tenant, CASE f.task WHEN '' THEN f.topic ELSE f.task END, f.key, n.position
    LOOP
        o_topic := NULL;
        SELECT * INTO v_job FROM finished_jobs WHERE id = v_id AND id = ANY (v_locked);
        IF NOT FOUND THEN
            o_verdict := CASE WHEN state_of(v_id, p_tenant) IS NULL THEN 'not_found' ELSE 'wrong_state' END;
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF v_job.state = 3 OR v_job.state = 5 AND p_failed_only THEN
            o_verdict := 'wrong_state';
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF v_job.key IS NOT NULL THEN
            v_scope := CASE v_job.task WHEN '' THEN v_job.topic ELSE v_job.task END;
            INSERT INTO job_keys (tenant, scope, key, id) VALUES (v_job.tenant, v_scope, v_job.key, v_id)
            ON CONFLICT DO NOTHING;
            SELECT id INTO v_holder FROM job_keys WHERE tenant = v_job.tenant AND scope = v_scope AND key = v_job.key;
            IF v_holder IS DISTINCT FROM v_id THEN
                o_verdict := 'key_taken';
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        IF v_job.has_dependents THEN
            DELETE FROM ended_parents e WHERE e.parent = v_id AND e.tenant = v_job.tenant AND e.state IS NOT NULL;
        END IF;
        DELETE FROM finished_jobs WHERE id = v_id;
        INSERT INTO jobs (
            id, number, priority, run_at, created_at, fence, timeout_us, lease_us, retention_us,
            retention_failed_us, attempt, max_attempts, reserves, timeouts, releases, buries, kicks, touches, state,
            key_until, format, has_separate_body, topic, task, tenant, retry, key, correlation_id, user_id, service_id,
            limit_key, headers, error_summary, payload, raw, has_dependents
        ) VALUES (
            v_id, v_job.number, v_job.priority, v_now, v_job.created_at, v_job.fence, v_job.timeout_us,
            v_job.lease_us, v_job.retention_us, v_job.retention_failed_us, 0, v_job.max_attempts, v_job.reserves,
            v_job.timeouts, v_job.releases, v_job.buries, coalesce(v_job.kicks, 0) + p_kicks, v_job.touches, 1,
            v_job.key_until, v_job.format, v_job.has_separate_body, v_job.topic, v_job.task, v_job.tenant, v_job.retry,
            v_job.key, v_job.correlation_id, v_job.user_id, v_job.service_id, v_job.limit_key, v_job.headers,
            v_job.error_summary,
            v_job.payload, v_job.raw, v_job.has_dependents
        );
        -- Checkpoint and steps stay: the next run goes on from there.
        UPDATE progress SET percent = NULL, message = NULL, stage = NULL, updated_at = NULL WHERE id = v_id;
        v_tenants := array_append(v_tenants, v_job.tenant);
        v_topics := array_append(v_topics, v_job.topic);
        v_tasks := array_append(v_tasks, v_job.task);
        v_before := array_append(v_before, v_job.state);
        v_back := array_append(v_back, v_id);
        o_verdict := 'done';
        o_topic := v_job.topic;
        RETURN NEXT;
    END LOOP;
    PERFORM count_transitions(v_now, v_tenants, v_topics, v_tasks, v_before, 1);
    -- When all are back: a job that runs after another of these waits for it, in whatever order they were named.
    FOR v_id IN SELECT r.id FROM unnest(v_related) AS r(id) WHERE r.id = ANY (v_back) LOOP
        v_blocked := restore_parents(v_id);
        IF v_blocked > 0 THEN
            WITH blocked AS (
                UPDATE jobs SET blocked = v_blocked, state = 0 WHERE id = v_id RETURNING tenant, topic, task
            )
            INSERT INTO counter_deltas (minute, tenant, topic, task, waiting, ready)
            SELECT minute_of(v_now), b.tenant, b.topic, b.task, 1, -1 FROM blocked b;
        END IF;
    END LOOP;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- Rows beside the verdicts about jobs that run after those that just ended: topics in which some became ready at
-- position 0, and -1 where there is more to do about them (release_dependents).
CREATE FUNCTION release_result(p_now bigint) RETURNS TABLE (o_position integer, o_topic text)
LANGUAGE plpgsql AS $$
DECLARE
    v_released record;
BEGIN
    IF current_setting('tidewheel.parents_ended', true) = 'true' THEN
        SELECT * INTO v_released FROM release_dependents(p_now, 1000, false);
        RETURN QUERY SELECT 0, t.topic FROM unnest(v_released.topics) AS t(topic);
        RETURN QUERY SELECT -1, NULL::text;
    END IF;
END
$$;

CREATE FUNCTION cancel(p_now bigint, p_ids uuid[], p_tenant text, p_summary text)
RETURNS TABLE (o_position integer, o_verdict text)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_id uuid;
    v_job record;
    v_locked uuid[];
    v_unbatch boolean := false;
    v_tenants text[] := '{}';
    v_topics text[] := '{}';
    v_tasks text[] := '{}';
    v_before smallint[] := '{}';
BEGIN
    -- All are locked before the first is ended, and with it lets go of its key: a transaction that waits for that key
    -- may have locked the next one.
    LOOP
        BEGIN
            IF v_unbatch THEN
                PERFORM unbatch_jobs(p_ids, array_fill(p_tenant, ARRAY[cardinality(p_ids)]));
            END IF;
            v_locked := ARRAY(
                SELECT id FROM jobs WHERE id = ANY (p_ids) AND coalesce(tenant = p_tenant, true) ORDER BY id FOR UPDATE
            );
            EXIT WHEN NOT EXISTS (
                SELECT FROM (
                    SELECT n.id FROM unnest(p_ids) AS n(id) EXCEPT SELECT l.id FROM unnest(v_locked) AS l(id)
                ) AS r
                WHERE state_of(r.id, p_tenant) < 3
            );
            RAISE SQLSTATE 'TW002';
        EXCEPTION WHEN SQLSTATE 'TW002' THEN
            -- In a batch, or requeued this very moment: looked for again without what was locked so far, because
            -- batches are locked before jobs.
            v_unbatch := true;
        END;
    END LOOP;
    v_now := now_us(p_now); -- they may have been waited for
    FOR o_position, v_id IN
        SELECT n.position, n.id FROM unnest(p_ids) WITH ORDINALITY AS n(id, position) ORDER BY n.id, n.position
    LOOP
        -- One that was finished a moment ago may be back and locked by another session: its state is taken as it was
        -- then.
        SELECT state, attempt, tenant, topic, task INTO v_job FROM jobs
        WHERE id = v_id AND coalesce(tenant = p_tenant, true) FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            o_verdict := CASE WHEN state_of(v_id, p_tenant) IS NULL THEN 'not_found' ELSE 'wrong_state' END;
        ELSIF v_job.state = 2 THEN
            UPDATE jobs SET cancel_requested = true WHERE id = v_id;
            o_verdict := 'requested';
        ELSE
            PERFORM finish(v_id, 5, v_now, v_job.attempt, NULL, p_summary, false, p_counted => true);
            v_tenants := array_append(v_tenants, v_job.tenant);
            v_topics := array_append(v_topics, v_job.topic);
            v_tasks := array_append(v_tasks, v_job.task);
            v_before := array_append(v_before, v_job.state);
            o_verdict := 'done';
        END IF;
        RETURN NEXT;
    END LOOP;
    PERFORM count_transitions(v_now, v_tenants, v_topics, v_tasks, v_before, 5);
    RETURN QUERY SELECT r.o_position, r.o_topic FROM release_result(p_now) AS r;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- Give running jobs back, whichever worker has them, without counting the attempt. The old lease is over: its fence is
-- not that of a running job any more. A job that was asked to cancel ends here, as any other that is released. The row
-- is written anew, because callers under row-level security may not change the columns of a lease.
CREATE FUNCTION take_back(p_now bigint, p_ids uuid[], p_tenant text, p_summary text)
RETURNS TABLE (o_position integer, o_verdict text, o_topic text)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_id uuid;
    v_job jobs;
BEGIN
    PERFORM unbatch_jobs(p_ids, array_fill(p_tenant, ARRAY[cardinality(p_ids)]));
    FOR o_position, v_id IN
        SELECT n.position, n.id FROM unnest(p_ids) WITH ORDINALITY AS n(id, position) ORDER BY n.id, n.position
    LOOP
        o_topic := NULL;
        SELECT * INTO v_job FROM jobs WHERE id = v_id AND coalesce(tenant = p_tenant, true) FOR UPDATE;
        IF NOT FOUND OR v_job.state <> 2 THEN
            o_verdict := CASE WHEN state_of(v_id, p_tenant) IS NULL THEN 'not_found' ELSE 'wrong_state' END;
            RETURN NEXT;
            CONTINUE;
        END IF;
        v_now := now_us(p_now);
        o_verdict := 'done';
        IF v_job.cancel_requested THEN
            PERFORM finish(v_id, 5, v_now, v_job.attempt - 1, v_job.started_at, p_summary, false, p_counted => true);
        ELSE
            o_topic := v_job.topic;
            DELETE FROM jobs WHERE id = v_id;
            v_job.state := 1;
            v_job.run_at := least(v_job.run_at, v_now);
            v_job.attempt := v_job.attempt - 1;
            v_job.counts_if_lost := false;
            v_job.leased_until := NULL;
            v_job.worker := NULL;
            v_job.claimed_at := NULL;
            v_job.started_at := NULL;
            INSERT INTO jobs SELECT v_job.*;
        END IF;
        INSERT INTO counter_deltas (minute, tenant, topic, task, ready, running, cancelled, cancelled_events)
        VALUES (minute_of(v_now), v_job.tenant, v_job.topic, v_job.task, (o_topic IS NOT NULL)::integer, -1,
                (o_topic IS NULL)::integer, (o_topic IS NULL)::integer);
        RETURN NEXT;
    END LOOP;
    RETURN QUERY SELECT r.o_position, r.o_topic, NULL::text FROM release_result(p_now) AS r;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- Delete everything that belongs to jobs whose rows are gone.
CREATE FUNCTION delete_job_data(p_ids uuid[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM bodies WHERE id = ANY (p_ids);
    DELETE FROM progress WHERE id = ANY (p_ids);
    DELETE FROM attempts WHERE id = ANY (p_ids);
    DELETE FROM steps WHERE id = ANY (p_ids);
    PERFORM delete_dependencies(p_ids);
END
$$;

CREATE FUNCTION delete_jobs(p_now bigint, p_ids uuid[], p_tenant text)
RETURNS TABLE (o_position integer, o_verdict text)
LANGUAGE plpgsql AS $$
DECLARE
    v_id uuid;
    v_job record;
    v_state smallint;
    v_ids uuid[] := '{}'; -- those that are gone
    v_keys text[] := '{}';
    v_tenants text[] := '{}';
    v_topics text[] := '{}';
    v_tasks text[] := '{}';
    v_before smallint[] := '{}';
BEGIN
    FOR o_position, v_id IN
        SELECT n.position, n.id FROM unnest(p_ids) WITH ORDINALITY AS n(id, position) ORDER BY n.id, n.position
    LOOP
        o_verdict := NULL;
        WHILE o_verdict IS NULL LOOP
            SELECT state, tenant, topic, task, key, has_dependents INTO v_job FROM jobs
            WHERE id = v_id AND coalesce(tenant = p_tenant, true) FOR UPDATE;
            IF FOUND AND v_job.state = 2 THEN
                o_verdict := 'wrong_state';
            ELSIF FOUND THEN
                DELETE FROM jobs WHERE id = v_id;
                o_verdict := 'done';
                IF v_job.has_dependents THEN
                    INSERT INTO ended_parents (parent, tenant, state) VALUES (v_id, v_job.tenant, 6);
                    PERFORM set_config('tidewheel.parents_ended', 'true', true);
                END IF;
            ELSE
                DELETE FROM finished_jobs WHERE id = v_id AND coalesce(tenant = p_tenant, true)
                RETURNING state, tenant, topic, task, key INTO v_job;
                IF FOUND THEN
                    o_verdict := 'done';
                ELSE
                    v_state := state_of(v_id, p_tenant);
                    o_verdict := CASE WHEN v_state IS NULL THEN 'not_found' WHEN v_state = 2 THEN 'wrong_state' END;
                END IF;
            END IF;
        END LOOP;
        IF o_verdict <> 'done' THEN
            RETURN NEXT;
            CONTINUE;
        END IF;
        PERFORM delete_job_data(ARRAY[v_id]);
        v_ids := array_append(v_ids, v_id);
        v_keys := array_append(v_keys, v_job.key);
        v_tenants := array_append(v_tenants, v_job.tenant);
        v_topics := array_append(v_topics, v_job.topic);
        v_tasks := array_append(v_tasks, v_job.task);
        v_before := array_append(v_before, v_job.state);
        RETURN NEXT;
    END LOOP;
    -- When all are locked: a transaction that waits for a key may have locked the next job. Only keys that these jobs
    -- hold: with until="finished" another job may hold the key by now.
    DELETE FROM job_keys k
    USING unnest(v_ids, v_tenants, v_topics, v_tasks, v_keys) AS g(id, tenant, topic, task, key)
    WHERE g.key IS NOT NULL AND k.tenant = ANY (ARRAY[g.tenant]) AND k.key = ANY (ARRAY[g.key])
        AND k.scope = ANY (ARRAY[CASE g.task WHEN '' THEN g.topic ELSE g.task END]) AND k.id = g.id;
    PERFORM count_transitions(now_us(p_now), v_tenants, v_topics, v_tasks, v_before, NULL);
    RETURN QUERY SELECT r.o_position, r.o_topic FROM release_result(p_now) AS r;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- Remove finished jobs whose time is over, oldest first; how many of each state. Whatever is overdue, a call looks at
-- no more than p_max_scanned jobs or so: where it stopped for that, there is a row without a state.
CREATE FUNCTION prune(
    p_now bigint, p_limit integer, p_max_scanned integer, p_minutes_before bigint, p_lane_minutes_before bigint
)
RETURNS TABLE (o_state smallint, o_n bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_us(p_now);
    v_together record;
    v_more boolean;
    v_wanted integer := p_limit;
    v_last bigint;
    v_rows tid[];
    v_due uuid[] := '{}';
    v_found integer;
    v_places tid[];
    v_ids uuid[];
    v_with_body uuid[];  -- those with a separate body
    v_with_attempts uuid[];  -- those with attempts that did not complete
BEGIN
    LOOP
        v_more := false;
        v_rows := '{}';
        FOR v_together IN
            SELECT ctid AS tid, prune_at, ids FROM retention_queue WHERE prune_at <= v_now ORDER BY prune_at, number
            FOR UPDATE SKIP LOCKED
        LOOP
            -- Among those due at the same time the order is by number, which rows do not tell: so all of them, unless
            -- these are very many.
            v_more := cardinality(v_due) >= v_wanted
                AND (v_together.prune_at > v_last OR cardinality(v_due) >= p_max_scanned);
            EXIT WHEN v_more;
            v_rows := array_append(v_rows, v_together.tid);
            v_due := v_due || v_together.ids;
            v_last := v_together.prune_at;
        END LOOP;
        DELETE FROM retention_queue WHERE ctid = ANY (v_rows);
        -- One that was requeued and finished again is named twice; or it has more time now, and another row says so.
        -- All ids in one array: they are neighbours in the index, and looking each up by itself costs four times that.
        -- A job that others were to run after has no prune_at as long as they are there.
        SELECT count(*), array_agg(d.place), array_agg(d.id), array_agg(d.id) FILTER (WHERE d.has_separate_body),
               array_agg(d.id) FILTER (WHERE d.error_summary IS NOT NULL)
        INTO v_found, v_places, v_ids, v_with_body, v_with_attempts
        FROM (
            SELECT f.ctid AS place, f.id, f.has_separate_body, f.error_summary FROM finished_jobs f
            WHERE f.id = ANY (v_due) AND f.prune_at <= v_now
            ORDER BY f.prune_at, f.number LIMIT p_limit
            FOR UPDATE OF f SKIP LOCKED
        ) AS d;
        EXIT WHEN NOT v_more OR v_found >= p_limit OR cardinality(v_due) >= p_max_scanned;
        v_wanted := cardinality(v_due) + p_limit - v_found; -- others had been removed, or are in use
    END LOOP;
    IF v_found > 0 THEN
        RETURN QUERY
            WITH gone AS (
                DELETE FROM finished_jobs f WHERE f.ctid = ANY (v_places) -- they are locked, and stay where they are
                RETURNING f.id, f.state, f.tenant, f.topic, f.task, f.key
            ), unlocked AS (
                DELETE FROM job_keys k USING gone g
                WHERE g.key IS NOT NULL AND k.tenant = ANY (ARRAY[g.tenant]) AND k.key = ANY (ARRAY[g.key])
                    AND k.scope = ANY (ARRAY[CASE g.task WHEN '' THEN g.topic ELSE g.task END]) AND k.id = g.id
            ), deltas AS (
                INSERT INTO counter_deltas (minute, tenant, topic, task, completed, failed, cancelled)
                SELECT minute_of(v_now), g.tenant, g.topic, g.task, -count(*) FILTER (WHERE g.state = 3),
                       -count(*) FILTER (WHERE g.state = 4), -count(*) FILTER (WHERE g.state = 5)
                FROM gone g GROUP BY g.tenant, g.topic, g.task
            )
            SELECT g.state, count(*) FROM gone g GROUP BY g.state;
        -- Most jobs have none of these, and a look for each would cost more than its own row does.
        IF v_with_body IS NOT NULL THEN
            DELETE FROM bodies WHERE id = ANY (v_with_body);
        END IF;
        IF v_with_attempts IS NOT NULL THEN
            DELETE FROM attempts WHERE id = ANY (v_with_attempts);
        END IF;
        IF EXISTS (SELECT FROM progress) THEN
            DELETE FROM progress WHERE id = ANY (v_ids);
        END IF;
        IF EXISTS (SELECT FROM steps) THEN
            DELETE FROM steps WHERE id = ANY (v_ids);
        END IF;
        IF EXISTS (SELECT FROM dependencies) THEN
            PERFORM delete_dependencies(v_ids);
        END IF;
    END IF;
    IF cardinality(v_due) > v_found THEN
        -- What was too much for this call, or is locked.
        INSERT INTO retention_queue (prune_at, number, ids)
        SELECT f.prune_at, min(f.number), array_agg(f.id) FROM finished_jobs f
        WHERE f.id = ANY (
                ARRAY(SELECT d.id FROM unnest(v_due) AS d(id) EXCEPT SELECT i.id FROM unnest(v_ids) AS i(id))
            ) AND f.prune_at <= v_now
        GROUP BY f.prune_at;
    END IF;
    IF v_more AND v_found < p_limit THEN
        o_n := cardinality(v_due);
        RETURN NEXT;
    END IF;
    IF pg_try_advisory_xact_lock('counter_deltas'::regclass::oid::bigint) THEN -- not while counters are rolled up
        DELETE FROM minute_metrics WHERE minute < v_now - p_minutes_before;
        DELETE FROM lane_minute_metrics WHERE minute < v_now - p_lane_minutes_before;
        DELETE FROM job_counts
        WHERE waiting = 0 AND ready = 0 AND running = 0 AND completed = 0 AND failed = 0 AND cancelled = 0;
    END IF;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- Documents, each under its own condition: p_only_versions is the version to write over, 0 = where there is none, NULL
-- = always. One that has expired is as good as gone. In one order, so that two that write the same do not wait for
-- each other.
CREATE FUNCTION write_documents(
    p_now bigint, p_kinds text[], p_ids text[], p_bodies bytea[], p_expires_at bigint[], p_only_versions bigint[]
)
RETURNS TABLE (o_ordinal bigint, o_version bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_new record;
    v_now bigint := now_us(p_now);
BEGIN
    FOR v_new IN
        SELECT u.ordinality, u.kind COLLATE "C" AS kind, u.id COLLATE "C" AS id, u.body, u.expires_at, u.only_version
        FROM unnest(p_kinds, p_ids, p_bodies, p_expires_at, p_only_versions) WITH ORDINALITY
            AS u(kind, id, body, expires_at, only_version)
        ORDER BY 2, 3
    LOOP
        o_version := NULL;
        IF v_new.only_version > 0 THEN
            UPDATE documents d
            SET body = v_new.body, updated_at = v_now, expires_at = v_new.expires_at, version = d.version + 1
            WHERE d.kind = v_new.kind AND d.id = v_new.id AND d.version = v_new.only_version
                AND (d.expires_at IS NULL OR d.expires_at > v_now)
            RETURNING d.version INTO o_version;
        ELSE
            INSERT INTO documents AS d (kind, id, body, created_at, updated_at, expires_at, version)
            VALUES (v_new.kind, v_new.id, v_new.body, v_now, v_now, v_new.expires_at, 1)
            ON CONFLICT (kind, id) DO UPDATE
            SET body = excluded.body, updated_at = excluded.updated_at, expires_at = excluded.expires_at,
                created_at = CASE WHEN d.expires_at <= v_now THEN excluded.created_at ELSE d.created_at END,
                version = CASE WHEN d.expires_at <= v_now THEN 1 ELSE d.version + 1 END
            WHERE v_new.only_version IS NULL OR d.expires_at <= v_now
            RETURNING d.version INTO o_version;
        END IF;
        o_ordinal := v_new.ordinality;
        RETURN NEXT;
    END LOOP;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s';

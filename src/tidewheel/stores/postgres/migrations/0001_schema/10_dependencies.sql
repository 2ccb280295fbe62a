-- Jobs that run after others (see the tables dependencies and ended_parents).
--
-- A call that ends a job with dependents leaves a row in ended_parents and sets tidewheel.parents_ended for the rest
-- of the transaction. At the end of the same call release_dependents deals with the jobs that wait. It waits for no
-- lock there: a child that is locked is left for a call of its own (p_wait_for_locks), which waits as long as it holds
-- nothing else that others want: for the children of the first parent. So a parent and its children can be locked in
-- any order without a deadlock.

-- Why a job was cancelled that was to run after another, as stores/terminal_errors.py says it. 6: deleted before it
-- had ended.
CREATE FUNCTION parent_failed_summary(p_parent uuid, p_state integer) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT 'parent_failed: job ' || p_parent || ', which it waited for, '
        || CASE p_state WHEN 4 THEN 'failed' WHEN 5 THEN 'was cancelled' ELSE 'was deleted' END
$$;

-- Jobs that were just written as if they could run: each of p_children runs after the job at the same position, however
-- that ends where p_after_any says so. 'TW001', with the id, when the child's tenant has no such job: then nothing may
-- be kept.
CREATE FUNCTION add_parents(p_now bigint, p_children uuid[], p_parents uuid[], p_after_any boolean[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_tenants text[];  -- of the children, one for each parent
    v_parents uuid[];  -- each once, with the tenant it must be of
    v_owners text[];
    v_open uuid[];
    v_over uuid[];
    v_unbatch boolean := false;
    v_missing uuid;
BEGIN
    SELECT array_agg(c.tenant ORDER BY e.position) INTO v_tenants
    FROM unnest(p_children) WITH ORDINALITY AS e(child, position) JOIN jobs c ON c.id = ANY (ARRAY[e.child]);
    SELECT array_agg(w.parent ORDER BY w.parent), array_agg(w.tenant ORDER BY w.parent) INTO v_parents, v_owners
    FROM (SELECT DISTINCT e.parent, e.tenant FROM unnest(p_parents, v_tenants) AS e(parent, tenant)) AS w;
    LOOP
        BEGIN
            IF v_unbatch THEN
                PERFORM unbatch_jobs(v_parents, v_owners);
            END IF;
            -- In the order of ids, as in every other function, whichever table they are in: a transaction that held
            -- running parents while it waited for an ended one would deadlock with others. KEY SHARE: they cannot end,
            -- but their leases can be extended.
            SELECT coalesce(array_agg(w.parent) FILTER (WHERE l.runs), '{}'),
                   coalesce(array_agg(w.parent) FILTER (WHERE NOT l.runs), '{}')
            INTO v_open, v_over
            FROM unnest(v_parents, v_owners) AS w(parent, tenant), LATERAL (
                SELECT true AS runs FROM (
                    SELECT FROM jobs j WHERE j.id = ANY (ARRAY[w.parent]) AND j.tenant = w.tenant FOR KEY SHARE
                ) AS open
                UNION ALL
                SELECT false FROM (
                    SELECT FROM finished_jobs f WHERE f.id = ANY (ARRAY[w.parent]) AND f.tenant = w.tenant FOR KEY SHARE
                ) AS over
            ) AS l;
            EXIT WHEN cardinality(v_open) + cardinality(v_over) = cardinality(v_parents);
            SELECT e.parent INTO v_missing
            FROM unnest(p_parents, v_tenants) WITH ORDINALITY AS e(parent, tenant, position)
            WHERE state_of(e.parent, e.tenant) IS NULL ORDER BY e.position LIMIT 1;
            IF FOUND THEN
                RAISE SQLSTATE 'TW001' USING MESSAGE = v_missing::text;
            END IF;
            RAISE SQLSTATE 'TW002';
        EXCEPTION WHEN SQLSTATE 'TW002' THEN
            -- In a batch, or moved this very moment: looked for again, without what was locked so far.
            v_unbatch := true;
        END;
    END LOOP;
    PERFORM FROM jobs WHERE id = ANY (v_open) AND NOT has_dependents ORDER BY id FOR NO KEY UPDATE;
    UPDATE jobs SET has_dependents = true WHERE id = ANY (v_open) AND NOT has_dependents;
    -- A parent stays as long as it has dependents: its prune_at is set again when the last of them is gone.
    UPDATE finished_jobs SET has_dependents = true, prune_at = NULL WHERE id = ANY (v_over)
        AND NOT (has_dependents AND prune_at IS NULL);
    INSERT INTO dependencies (child, parent, tenant, position, after_any, unresolved)
    SELECT e.child, e.parent, e.tenant, e.position, e.after_any, f.id IS NULL OR f.state > 3 AND NOT e.after_any
    FROM unnest(p_children, p_parents, v_tenants, p_after_any)
        WITH ORDINALITY AS e(child, parent, tenant, after_any, position)
        LEFT JOIN finished_jobs f ON f.id = ANY (ARRAY[e.parent]) AND f.tenant = e.tenant;
    WITH counted AS (
        SELECT d.child, count(*) AS n FROM (SELECT DISTINCT u.child FROM unnest(p_children) AS u(child)) AS e
            JOIN dependencies d ON d.child = ANY (ARRAY[e.child])
        WHERE d.unresolved GROUP BY d.child
    ), before AS (
        SELECT k.child, k.n, c.state FROM counted k JOIN jobs c ON c.id = ANY (ARRAY[k.child])
    ), blocked AS (
        UPDATE jobs c SET blocked = b.n, state = 0 FROM before b WHERE c.id = ANY (ARRAY[b.child])
        RETURNING c.tenant, c.topic, c.task, b.state
    )
    INSERT INTO counter_deltas (minute, tenant, topic, task, waiting, ready)
    SELECT minute_of(p_now), b.tenant, b.topic, b.task, count(*), -count(*)
    FROM blocked b WHERE b.state = 1 GROUP BY b.tenant, b.topic, b.task;
    -- Parents that had ended badly end these as if they had just done so. A role that may not end jobs leaves it to
    -- workers, who see to it within a second.
    INSERT INTO ended_parents (parent, tenant, state)
    SELECT DISTINCT f.id, f.tenant, f.state
    FROM unnest(p_parents, v_tenants, p_after_any) AS e(parent, tenant, after_any)
        JOIN finished_jobs f ON f.id = ANY (ARRAY[e.parent]) AND f.tenant = e.tenant
    WHERE f.state > 3 AND NOT e.after_any;
    IF FOUND AND has_table_privilege('jobs', 'DELETE') THEN
        PERFORM release_dependents(p_now, 1000, false);
    END IF;
END
$$;

-- Release jobs whose parents have ended, or cancel them: up to p_limit, by the ids of the parents. A job that is
-- cancelled is a parent that has ended in its turn: it gets a row of ended_parents, so nothing recurses. topics: where
-- jobs became ready. unfinished: there is more to do, in a transaction of its own.
CREATE FUNCTION release_dependents(p_now bigint, p_limit integer, p_wait_for_locks boolean, OUT topics text[],
    OUT unfinished boolean)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_us(p_now);
    v_left integer := p_limit;
    v_wait boolean := p_wait_for_locks;
    v_passed tid[] := '{}'; -- rows of ended_parents with a child that is locked
    v_ended record;
    v_waiting uuid[];
    v_open uuid[];
    v_over uuid[];
    v_child record;
    v_ready text[];
    v_tenants text[] := '{}'; -- of those that were cancelled
    v_topics text[] := '{}';
    v_tasks text[] := '{}';
    v_before smallint[] := '{}';
BEGIN
    topics := '{}'; unfinished := false;
    LOOP
        SELECT e.ctid AS tid, e.parent, e.tenant, e.state INTO v_ended FROM ended_parents e
        WHERE e.state IS NOT NULL AND e.ctid <> ALL (v_passed)
        ORDER BY e.parent LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        IF v_left <= 0 THEN
            unfinished := true;
            EXIT;
        END IF;
        v_waiting := ARRAY(
            SELECT d.child FROM dependencies d
            WHERE d.unresolved AND d.parent = v_ended.parent AND d.tenant = v_ended.tenant
            ORDER BY d.child LIMIT v_left
        );
        IF v_wait THEN
            v_open := ARRAY(
                SELECT j.id FROM jobs j WHERE j.id = ANY (v_waiting) AND j.tenant = v_ended.tenant
                ORDER BY j.id FOR UPDATE
            );
            v_wait := false; -- from now on others may want what is held here
        ELSE
            v_open := ARRAY(
                SELECT j.id FROM jobs j WHERE j.id = ANY (v_waiting) AND j.tenant = v_ended.tenant
                ORDER BY j.id FOR UPDATE SKIP LOCKED
            );
        END IF;
        -- Those that have ended by themselves, or are gone. Who brings one back or removes it holds what is written of
        -- it.
        v_over := '{}';
        IF cardinality(v_open) < cardinality(v_waiting) THEN
            v_over := ARRAY(
                SELECT d.child FROM dependencies d
                WHERE d.child = ANY (v_waiting) AND d.parent = v_ended.parent AND d.tenant = v_ended.tenant
                    AND d.child <> ALL (v_open)
                    AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = d.child AND j.tenant = d.tenant)
                FOR UPDATE OF d SKIP LOCKED
            );
        END IF;
        WITH freed AS (
            UPDATE jobs j
            SET blocked = j.blocked - 1, state = (j.blocked = 1 AND j.run_at <= v_now)::integer
            FROM unnest(v_open) AS o(id)
                JOIN dependencies d ON d.child = ANY (ARRAY[o.id]) AND d.parent = v_ended.parent
                    AND d.tenant = v_ended.tenant
            WHERE j.id = ANY (ARRAY[o.id]) AND (v_ended.state = 3 OR d.after_any)
            RETURNING j.tenant, j.topic, j.task, j.blocked, j.state
        ), deltas AS (
            INSERT INTO counter_deltas (minute, tenant, topic, task, waiting, ready)
            SELECT minute_of(v_now), f.tenant, f.topic, f.task, -count(*), count(*)
            FROM freed f WHERE f.state = 1 GROUP BY f.tenant, f.topic, f.task
        )
        -- Also of delayed ones: a sleeping worker has to learn when to get up.
        SELECT array_agg(DISTINCT f.topic) INTO v_ready FROM freed f WHERE f.blocked = 0;
        topics := topics || coalesce(v_ready, '{}');
        IF v_ended.state > 3 THEN
            FOR v_child IN
                SELECT d.child, j.attempt, j.tenant, j.topic, j.task, j.state FROM unnest(v_open) AS o(id)
                    JOIN dependencies d ON d.child = ANY (ARRAY[o.id]) AND d.parent = v_ended.parent
                        AND d.tenant = v_ended.tenant
                    JOIN jobs j ON j.id = ANY (ARRAY[o.id])
                WHERE NOT d.after_any
            LOOP
                PERFORM finish(v_child.child, 5, v_now, v_child.attempt, NULL,
                               parent_failed_summary(v_ended.parent, v_ended.state), false, p_counted => true);
                v_tenants := array_append(v_tenants, v_child.tenant);
                v_topics := array_append(v_topics, v_child.topic);
                v_tasks := array_append(v_tasks, v_child.task);
                v_before := array_append(v_before, v_child.state);
            END LOOP;
        END IF;
        UPDATE dependencies SET unresolved = false
        WHERE child = ANY (v_open || v_over) AND parent = v_ended.parent AND tenant = v_ended.tenant;
        v_left := v_left - cardinality(v_open) - cardinality(v_over);
        IF cardinality(v_open) + cardinality(v_over) < cardinality(v_waiting) THEN
            v_passed := v_passed || v_ended.tid;
            unfinished := true;
        ELSIF NOT EXISTS (
            SELECT FROM dependencies d
            WHERE d.unresolved AND d.parent = v_ended.parent AND d.tenant = v_ended.tenant
        ) THEN
            DELETE FROM ended_parents WHERE ctid = v_ended.tid;
            IF NOT EXISTS (
                SELECT FROM dependencies d WHERE d.parent = v_ended.parent AND d.tenant = v_ended.tenant
            ) THEN
                INSERT INTO ended_parents (parent, tenant) VALUES (v_ended.parent, v_ended.tenant);
                unfinished := unfinished OR NOT p_wait_for_locks;
            END IF;
        END IF;
    END LOOP;
    IF p_wait_for_locks THEN
        FOR v_ended IN
            SELECT e.ctid AS tid, e.parent, e.tenant FROM ended_parents e WHERE e.state IS NULL
            ORDER BY e.parent LIMIT p_limit FOR UPDATE SKIP LOCKED
        LOOP
            IF clear_dependents_flag(v_ended.parent, v_ended.tenant) THEN
                DELETE FROM ended_parents WHERE ctid = v_ended.tid;
            END IF;
        END LOOP;
    END IF;
    IF v_before <> '{}' THEN
        PERFORM count_transitions(v_now, v_tenants, v_topics, v_tasks, v_before, 5);
    END IF;
    PERFORM set_config('tidewheel.parents_ended', '', true);
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- Where a finished job has no dependents any more, set the prune_at it would have had. False: the job is locked.
CREATE FUNCTION clear_dependents_flag(p_id uuid, p_tenant text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_job record;
BEGIN
    -- Locked first and looked at then: another child may have been enqueued meanwhile.
    PERFORM FROM finished_jobs WHERE id = p_id AND tenant = p_tenant FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NOT EXISTS (SELECT FROM finished_jobs WHERE id = p_id AND tenant = p_tenant);
    END IF;
    IF EXISTS (SELECT FROM dependencies d WHERE d.parent = p_id AND d.tenant = p_tenant) THEN
        RETURN true;
    END IF;
    UPDATE finished_jobs
    SET has_dependents = false, prune_at = CASE WHEN buried THEN NULL
                                         WHEN state = 4 THEN finished_at + retention_failed_us
                                         ELSE finished_at + retention_us END
    WHERE id = p_id
    RETURNING prune_at, number INTO v_job;
    IF v_job.prune_at IS NOT NULL THEN
        INSERT INTO retention_queue (prune_at, number, ids) VALUES (v_job.prune_at, v_job.number, ARRAY[p_id]);
    END IF;
    RETURN true;
END
$$;

-- Jobs that are gone: those they were to run after need not be kept for them any more. Left for a call of
-- release_dependents that may wait: here rows are locked that others want.
CREATE FUNCTION delete_dependencies(p_ids uuid[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH gone AS (
        DELETE FROM dependencies d WHERE d.child = ANY (p_ids) RETURNING d.parent, d.tenant
    )
    INSERT INTO ended_parents (parent, tenant) SELECT DISTINCT g.parent, g.tenant FROM gone g;
    IF FOUND THEN
        PERFORM set_config('tidewheel.parents_ended', 'true', true);
    END IF;
END
$$;

-- How many parents a job that is to be run once more has to wait for: those that have not ended by now. They are locked
-- by the caller.
CREATE FUNCTION restore_parents(p_id uuid) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_blocked integer;
BEGIN
    UPDATE dependencies d
    SET unresolved = EXISTS (SELECT FROM jobs p WHERE p.id = d.parent AND p.tenant = d.tenant)
    WHERE d.child = p_id;
    SELECT count(*) INTO v_blocked FROM dependencies d WHERE d.child = p_id AND d.unresolved;
    RETURN v_blocked;
END
$$;

-- The parents of a job, in the order in which they were named: id, state (NULL: it is gone), whether it is waited for,
-- and whether they may end in any way. A job with dependents is never in a batch.
CREATE FUNCTION parents_of(p_id uuid, p_tenant text, p_state integer)
RETURNS TABLE (o_parent uuid, o_state smallint, o_unresolved boolean, o_after_any boolean)
LANGUAGE sql STABLE AS $$
    SELECT d.parent,
           coalesce((SELECT p.state FROM jobs p WHERE p.id = d.parent AND p.tenant = d.tenant),
                    (SELECT f.state FROM finished_jobs f WHERE f.id = d.parent AND f.tenant = d.tenant)),
           d.unresolved AND p_state < 2, d.after_any
    FROM dependencies d WHERE d.child = p_id AND d.tenant = p_tenant ORDER BY d.position
$$;

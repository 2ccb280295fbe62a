-- For programs that pull jobs by hand: claim one job, touch leases, kick, peek, and how much is in a topic.

-- What a claim does before it chooses: deal with ended leases and expired jobs, promote delayed ones that are due. In a
-- call of its own, so that nothing of it is locked while the job that is wanted is waited for.
CREATE FUNCTION run_maintenance(
    p_now bigint, p_maintained_until bigint, p_messages text[], p_latest_trusted bigint,
    OUT returned integer, OUT failed integer, OUT cancelled integer, OUT expired integer, OUT topics text[],
    OUT rescued_jobs text[], OUT promoted boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_us(p_now);
    v_head record;
BEGIN
    returned := 0; failed := 0; cancelled := 0; expired := 0; topics := '{}'; rescued_jobs := '{}'; promoted := false;
    SELECT * INTO v_head FROM next_deadlines(p_maintained_until, v_now);
    IF least(v_head.leased_until, v_head.expires_at) <= v_now THEN
        SELECT r.returned, r.failed, r.cancelled, r.expired, r.topics, r.rescued_jobs
        INTO returned, failed, cancelled, expired, topics, rescued_jobs
        FROM rescue(p_now, 1000, p_maintained_until, p_messages, p_latest_trusted) AS r;
    END IF;
    IF v_head.run_at <= v_now THEN
        PERFORM promote(v_now, 10000, p_maintained_until);
        promoted := true;
    END IF;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off;

-- Grant just this job: pending, or failed, which is brought back first. The columns are those of claim.
CREATE FUNCTION claim_job(
    p_now bigint, p_id uuid, p_tenant text, p_worker text, p_lease_us bigint, p_store_handle bigint
) RETURNS TABLE (
    o_id uuid, o_fence bigint, o_topic text, o_task text, o_tenant text, o_priority bigint, o_attempt integer,
    o_max_attempts integer, o_timeout_us bigint, o_retry text, o_lease_us bigint, o_payload text, o_raw bytea,
    o_format smallint, o_checkpoint text, o_number bigint, o_created_at bigint, o_run_at bigint, o_key text,
    o_correlation_id text, o_user_id text, o_service_id text, o_headers text, o_losses integer
)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_job record;
BEGIN
    LOOP
        SELECT j.state, j.blocked, j.tenant, j.topic, j.task INTO v_job FROM jobs j
        WHERE j.id = p_id AND coalesce(j.tenant = p_tenant, true) FOR UPDATE;
        EXIT WHEN FOUND;
        IF EXISTS (
            SELECT FROM dependencies d JOIN jobs p ON p.id = ANY (ARRAY[d.parent]) AND p.tenant = d.tenant
            WHERE d.child = p_id
        ) THEN
            RETURN; -- it would have to wait
        END IF;
        PERFORM FROM requeue(p_now, ARRAY[p_id], p_tenant, p_kicks => 0, p_failed_only => true) AS r
        WHERE r.o_verdict = 'done';
        IF NOT FOUND AND coalesce(state_of(p_id, p_tenant), 2) >= 2 THEN
            RETURN; -- there is none, it runs in a batch, it ended otherwise, or its key is taken
        END IF;
        -- It was brought back, or moved this very moment: there is something to lock.
    END LOOP;
    IF v_job.state = 2 OR v_job.blocked > 0 THEN
        RETURN;
    END IF;
    v_now := now_us(p_now); -- the row may have been waited for
    RETURN QUERY
        UPDATE jobs j
        SET state = 2, attempt = attempt + 1, fence = nextval('fences') * 64, run_at = least(run_at, v_now),
            leased_until = v_now + coalesce(lease_us, p_lease_us), worker = p_worker, claimed_at = v_now,
            store_handle = p_store_handle, started_at = NULL, counts_if_lost = true, reserves = reserves + 1,
            -- No limit was asked, but it counts as running.
            limit_key = coalesce(limit_key, (SELECT '' FROM topics t WHERE t.topic = j.topic AND t.limits IS NOT NULL))
        WHERE j.id = p_id
        RETURNING j.id, j.fence, j.topic, j.task, j.tenant, j.priority, j.attempt, j.max_attempts, j.timeout_us,
            j.retry, coalesce(j.lease_us, p_lease_us),
            CASE WHEN j.has_separate_body THEN (
                SELECT b.payload FROM bodies b WHERE b.id = j.id AND b.tenant = j.tenant
            ) ELSE j.payload END,
            CASE WHEN j.has_separate_body THEN (
                SELECT b.raw FROM bodies b WHERE b.id = j.id AND b.tenant = j.tenant
            ) ELSE j.raw END,
            j.format, CASE WHEN j.reserves > 1 THEN (SELECT p.checkpoint FROM progress p WHERE p.id = j.id) END,
            j.number, j.created_at, j.run_at, j.key, j.correlation_id, j.user_id, j.service_id, j.headers,
            CASE WHEN j.suspect THEN greatest(j.timeouts, 1) ELSE 0 END;
    INSERT INTO counter_deltas (minute, tenant, topic, task, waiting, ready, running)
    VALUES (minute_of(v_now), v_job.tenant, v_job.topic, v_job.task, -(v_job.state = 0)::integer,
            -(v_job.state = 1)::integer, 1);
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- Let leases that hold last as long again as they were granted for: how long, by position. See 05_settle.sql for the
-- rest.
CREATE FUNCTION touch_leases(p_now bigint, p_ids uuid[], p_fences bigint[], p_lease_us bigint)
RETURNS TABLE (o_position integer, o_lease_us bigint)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM unbatch_leases(p_fences);
    RETURN QUERY
        UPDATE jobs j
        SET leased_until = now_us(p_now) + coalesce(lease_us, p_lease_us), touches = coalesce(touches, 0) + 1
        FROM unnest(p_ids, p_fences) WITH ORDINALITY AS e(id, fence, position)
        WHERE j.id = ANY (ARRAY[e.id]) AND j.fence = e.fence AND j.leased_until > now_us(p_now)
        RETURNING e.position::integer, coalesce(j.lease_us, p_lease_us);
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- Bring back the first failed jobs of a topic, or, where none can come back, make the first delayed ones due, unless
-- p_failed_only. How many. p_max_scanned: so many of which another job holds the key may be passed over. What others
-- have locked is left to them: two kicks bring back different jobs, and neither waits for the other. Plans are made
-- for the values at hand, so that a tenant, if there is one, is looked for in the index.
CREATE FUNCTION kick_topic(
    p_now bigint, p_topic text, p_limit integer, p_max_scanned integer, p_tenant text, p_failed_only boolean
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_us(p_now);
    v_job record;
    v_scope text;
    v_ids uuid[] := '{}';
    v_keys text[] := '{}'; -- of those that are about to come back
    v_at bigint := 0; -- how far it looked
    v_number bigint := 0;
    v_passed integer;
    v_left_to_scan integer := p_max_scanned;
    v_kicked bigint;
BEGIN
    LOOP
        v_passed := 0;
        FOR v_job IN
            -- No more than are wanted: what is locked here, others pass over.
            SELECT f.id, f.tenant, f.topic, f.task, f.key, f.finished_at, f.number FROM finished_jobs f
            WHERE f.state = 4 AND f.topic = p_topic AND (f.finished_at, f.number) > (v_at, v_number)
                AND (p_tenant IS NULL OR f.tenant = p_tenant)
            ORDER BY f.finished_at, f.number LIMIT p_limit - cardinality(v_ids)
            FOR UPDATE SKIP LOCKED
        LOOP
            v_at := v_job.finished_at;
            v_number := v_job.number;
            IF v_job.key IS NOT NULL THEN
                v_scope := CASE v_job.task WHEN '' THEN v_job.topic ELSE v_job.task END;
                IF (v_job.tenant, v_scope, v_job.key)::text = ANY (v_keys) OR EXISTS (
                    SELECT FROM job_keys k
                    WHERE k.tenant = v_job.tenant AND k.scope = v_scope AND k.key = v_job.key AND k.id <> v_job.id
                ) THEN
                    v_passed := v_passed + 1;
                    CONTINUE;
                END IF;
                v_keys := array_append(v_keys, (v_job.tenant, v_scope, v_job.key)::text);
            END IF;
            v_ids := array_append(v_ids, v_job.id);
        END LOOP;
        v_left_to_scan := v_left_to_scan - v_passed;
        EXIT WHEN v_passed = 0 OR v_left_to_scan <= 0;
    END LOOP;
    IF v_ids <> '{}' THEN
        SELECT count(*) INTO v_kicked FROM requeue(p_now, v_ids, p_tenant) AS r WHERE r.o_verdict = 'done';
        IF v_kicked > 0 THEN
            RETURN v_kicked;
        END IF;
    END IF;
    IF p_failed_only THEN
        RETURN 0;
    END IF;
    WITH kicked AS (
        UPDATE jobs SET state = 1, run_at = v_now, kicks = coalesce(kicks, 0) + 1
        WHERE ctid = ANY (ARRAY(
            SELECT j.ctid FROM jobs j
            WHERE j.state = 0 AND j.blocked = 0 AND j.topic = p_topic AND j.run_at > v_now
                AND (p_tenant IS NULL OR j.tenant = p_tenant)
            ORDER BY j.run_at, j.number LIMIT p_limit
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING tenant, topic, task
    ), deltas AS (
        INSERT INTO counter_deltas (minute, tenant, topic, task, waiting, ready)
        SELECT minute_of(v_now), tenant, topic, task, -count(*), count(*) FROM kicked GROUP BY tenant, topic, task
    )
    SELECT count(*) INTO v_kicked FROM kicked;
    RETURN v_kicked;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off SET enable_incremental_sort = off;

-- The same for single jobs, with verdicts as in 06_admin.sql.
CREATE FUNCTION kick_jobs(p_now bigint, p_ids uuid[], p_tenant text)
RETURNS TABLE (o_position integer, o_verdict text, o_topic text)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_us(p_now);
    v_id uuid;
    v_job record;
    v_rest uuid[] := '{}';
    v_positions integer[] := '{}';
BEGIN
    PERFORM lock_ended_parents(p_ids, p_tenant);
    FOR o_position, v_id IN
        SELECT n.position, n.id FROM unnest(p_ids) WITH ORDINALITY AS n(id, position) ORDER BY n.id, n.position
    LOOP
        SELECT state, blocked, run_at, tenant, topic, task INTO v_job FROM jobs
        WHERE id = v_id AND coalesce(tenant = p_tenant, true) FOR UPDATE;
        IF NOT FOUND THEN
            -- Locked now, in the order of ids; what becomes of it is decided below, in the order of keys.
            PERFORM FROM finished_jobs WHERE id = v_id AND coalesce(tenant = p_tenant, true) FOR UPDATE;
            v_rest := array_append(v_rest, v_id);
            v_positions := array_append(v_positions, o_position);
            CONTINUE;
        END IF;
        o_verdict := 'wrong_state';
        o_topic := NULL;
        IF v_job.state = 0 AND v_job.blocked = 0 AND v_job.run_at > v_now THEN
            UPDATE jobs SET state = 1, run_at = v_now, kicks = coalesce(kicks, 0) + 1 WHERE id = v_id;
            INSERT INTO counter_deltas (minute, tenant, topic, task, waiting, ready)
            VALUES (minute_of(v_now), v_job.tenant, v_job.topic, v_job.task, -1, 1);
            o_verdict := 'done';
            o_topic := v_job.topic;
        END IF;
        RETURN NEXT;
    END LOOP;
    RETURN QUERY
        SELECT v_positions[r.o_position], r.o_verdict, r.o_topic
        FROM requeue(p_now, v_rest, p_tenant, p_failed_only => true) AS r;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- The first job of a topic: the ready one that a claim would grant first, the delayed one that is due next, or the one
-- that failed first (model.Head). Delayed jobs that are due are ready, even if they are not promoted yet; p_max_scanned
-- of those are looked at. p_max_scanned_of_tenant: so many jobs of a tenant are looked at one by one. Plans as in
-- kick_topic.
CREATE FUNCTION first_job_of_topic(
    p_now bigint, p_topic text, p_head text, p_tenant text, p_max_scanned_of_tenant integer, p_max_scanned integer
) RETURNS uuid
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_now bigint := now_us(p_now);
    v_id uuid;
    v_jobs bigint;
BEGIN
    IF p_head = 'failed' THEN
        SELECT f.id INTO v_id FROM finished_jobs f
        WHERE f.state = 4 AND f.topic = p_topic AND (p_tenant IS NULL OR f.tenant = p_tenant)
        ORDER BY f.finished_at, f.number LIMIT 1;
        RETURN v_id;
    END IF;
    IF p_head = 'delayed' THEN
        SELECT j.id INTO v_id FROM jobs j
        WHERE j.state = 0 AND j.blocked = 0 AND j.topic = p_topic AND j.run_at > v_now
            AND (p_tenant IS NULL OR j.tenant = p_tenant)
        ORDER BY j.run_at, j.number LIMIT 1;
        RETURN v_id;
    END IF;
    IF p_tenant <> 'root' THEN
        SELECT count(*), (array_agg(t.id ORDER BY t.urgency, t.number) FILTER (WHERE t.due))[1] INTO v_jobs, v_id
        FROM (
            SELECT j.id, -j.priority AS urgency, j.number,
                   j.state < 2 AND j.blocked = 0 AND j.topic = p_topic AND j.run_at <= v_now AS due
            -- In no order: for one by number all jobs might be read.
            FROM jobs j WHERE j.tenant = p_tenant AND j.tenant <> 'root' LIMIT p_max_scanned_of_tenant + 1
        ) AS t;
        IF v_jobs <= p_max_scanned_of_tenant THEN
            RETURN v_id;
        END IF;
    END IF;
    SELECT (array_agg(h.id ORDER BY h.urgency, h.number))[1] INTO v_id
    FROM (
        SELECT first.*
        FROM tasks_of_topic(p_topic) AS t(task), LATERAL (
            SELECT j.id, -j.priority AS urgency, j.number FROM jobs j
            WHERE j.state = 1 AND j.topic = p_topic AND j.task = t.task
                AND (p_tenant IS NULL OR j.tenant = p_tenant)
            ORDER BY (-j.priority), j.number LIMIT 1
        ) AS first
        UNION ALL
        SELECT late.* FROM (
            SELECT j.id, -j.priority AS urgency, j.number FROM jobs j
            WHERE j.state = 0 AND j.blocked = 0 AND j.topic = p_topic AND j.run_at <= v_now
                AND (p_tenant IS NULL OR j.tenant = p_tenant)
            ORDER BY j.run_at, j.number LIMIT p_max_scanned
        ) AS late
    ) AS h;
    RETURN v_id;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off SET enable_incremental_sort = off;

-- How much is unfinished in these topics (NULL: in all), from counters and the ends of indexes, as arrays. Topics that
-- only others have jobs in are not among them. p_urgent: jobs above this priority are counted, to p_count_limit in
-- each lane that has others, too. p_max_scanned: so many delayed jobs of a topic that are due, and blocked ones, are
-- looked at.
CREATE FUNCTION topic_depths(
    p_now bigint, p_topics text[], p_tenant text, p_urgent bigint, p_count_limit integer, p_max_scanned integer
) RETURNS TABLE (
    o_topics text[], o_ready bigint[], o_delayed bigint[], o_running bigint[], o_failed bigint[], o_urgent bigint[],
    o_paused text[], o_paused_until bigint[]
)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_now bigint := now_us(p_now);
BEGIN
    WITH lanes AS MATERIALIZED (
        SELECT c.topic, c.task, sum(c.waiting)::bigint AS waiting, sum(c.ready)::bigint AS ready,
               sum(c.running)::bigint AS running, sum(c.completed)::bigint AS completed,
               sum(c.failed)::bigint AS failed, sum(c.cancelled)::bigint AS cancelled
        FROM (
            SELECT topic, task, waiting, ready, running, completed, failed, cancelled
            FROM job_counts
            WHERE (p_tenant IS NULL OR tenant = p_tenant) AND (p_topics IS NULL OR topic = ANY (p_topics))
            UNION ALL
            SELECT topic, task, sum(waiting), sum(ready), sum(running), sum(completed), sum(failed), sum(cancelled)
            FROM counter_deltas
            WHERE (p_tenant IS NULL OR tenant = p_tenant) AND (p_topics IS NULL OR topic = ANY (p_topics))
            GROUP BY topic, task
        ) AS c
        GROUP BY c.topic, c.task
    ), urgent AS MATERIALIZED (
        -- One look at the right end of a lane: nearly always it tells that all are.
        SELECT l.topic, sum(CASE WHEN (
            SELECT j.priority FROM jobs j WHERE j.state = 1 AND j.topic = l.topic AND j.task = l.task
            ORDER BY (-j.priority) DESC, j.number DESC LIMIT 1
        ) > p_urgent THEN l.ready ELSE (
            SELECT count(*) FROM (
                SELECT j.tenant FROM jobs j
                WHERE j.state = 1 AND j.topic = l.topic AND j.task = l.task AND (-j.priority) < -p_urgent
                ORDER BY (-j.priority), j.number LIMIT p_count_limit
            ) AS u WHERE p_tenant IS NULL OR u.tenant = p_tenant
        ) END)::bigint AS n
        FROM lanes l WHERE l.ready > 0 GROUP BY l.topic
    ), behind AS MATERIALIZED (
        SELECT b.topic, count(*) AS n
        FROM (
            SELECT j.topic FROM jobs j
            WHERE j.blocked > 0 AND j.state = 0 AND (p_tenant IS NULL OR j.tenant = p_tenant)
            ORDER BY j.number LIMIT p_max_scanned
        ) AS b
        GROUP BY b.topic
    ), topics_of AS (
        SELECT l.topic, sum(l.waiting)::bigint AS waiting, sum(l.ready)::bigint AS ready,
               sum(l.running)::bigint AS running, sum(l.failed)::bigint AS failed
        FROM lanes l
        WHERE l.waiting <> 0 OR l.ready <> 0 OR l.running <> 0 OR l.completed <> 0 OR l.failed <> 0 OR l.cancelled <> 0
        GROUP BY l.topic
    ), told AS (
        SELECT t.topic, t.ready + late.n AS ready,
               t.waiting - late.n - coalesce((SELECT b.n FROM behind b WHERE b.topic = t.topic), 0) AS delayed,
               t.running, t.failed,
               coalesce((SELECT u.n FROM urgent u WHERE u.topic = t.topic), 0) + late.urgent AS urgent
        FROM topics_of t, LATERAL (
            -- Due, but not promoted yet, because no worker has claimed since.
            SELECT count(*) AS n, count(*) FILTER (WHERE d.priority > p_urgent) AS urgent
            FROM (
                SELECT j.priority FROM jobs j
                WHERE t.waiting > 0 AND j.state = 0 AND j.blocked = 0 AND j.topic = t.topic AND j.run_at <= v_now
                    AND (p_tenant IS NULL OR j.tenant = p_tenant)
                ORDER BY j.run_at, j.number LIMIT p_max_scanned
            ) AS d
        ) AS late
    )
    SELECT coalesce(array_agg(t.topic), '{}'), coalesce(array_agg(t.ready), '{}'),
           coalesce(array_agg(t.delayed), '{}'), coalesce(array_agg(t.running), '{}'),
           coalesce(array_agg(t.failed), '{}'), coalesce(array_agg(t.urgent), '{}')
    INTO o_topics, o_ready, o_delayed, o_running, o_failed, o_urgent
    FROM told t;
    SELECT coalesce(array_agg(p.topic), '{}'), coalesce(array_agg(p.paused_until), '{}')
    INTO o_paused, o_paused_until
    FROM topics p WHERE p.paused_until > v_now;
    RETURN NEXT;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_incremental_sort = off
SET max_parallel_workers_per_gather = 0;

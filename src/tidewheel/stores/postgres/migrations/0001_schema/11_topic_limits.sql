-- Topics with limits: setting them, and choosing what has room. stores/limit_check.py decides the same for the other
-- stores.
--
-- Nothing is counted for a limit on what runs: it is looked at. Claims of one limited topic come one after another, by
-- an advisory lock until the end of their transaction, so that each sees what the one before granted: every statement
-- of a function has a snapshot of its own. A claim that sees no room while another one chooses does not wait. Locks are
-- taken in the order of topics, after everything that may wait for rows; from then on a claim waits for nothing but the
-- next lock, so there is no deadlock.

-- The key of the advisory lock that claims of a topic take.
CREATE FUNCTION topic_limits_lock_key(p_topic text) RETURNS bigint
LANGUAGE sql AS $$
    SELECT hashtextextended('tidewheel.limits.' || current_schema() || '.' || p_topic, 0)
$$;

-- Jobs of a topic that run without a limit key get an empty one, and a row, so that they count. Waits for no lock: what
-- is locked is left for the next time.
CREATE FUNCTION count_running_as_limited(p_topic text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_unmarked uuid[];
BEGIN
    IF EXISTS (SELECT FROM leased_batches p WHERE p.batch > 0) THEN
        PERFORM unbatch(array_agg(l.batch), array_agg(l.held_mask))
        FROM (
            SELECT p.batch, p.held_mask FROM leased_batches p
            WHERE p.batch > 0 AND EXISTS (SELECT FROM unnest(p.jobs) AS r WHERE r.topic = p_topic)
            ORDER BY p.batch FOR UPDATE SKIP LOCKED
        ) AS l;
    END IF;
    v_unmarked := ARRAY(
        SELECT j.id FROM jobs j
        WHERE j.state = 2 AND j.leased_until > 0 AND j.topic = p_topic AND j.limit_key IS NULL
        ORDER BY j.id FOR UPDATE SKIP LOCKED
    );
    IF v_unmarked <> '{}' THEN
        UPDATE jobs SET limit_key = '' WHERE id = ANY (v_unmarked);
    END IF;
END
$$;

-- Set what holds for a topic, or end that (NULL). done: false where code would change what an operator has set, NULL
-- where p_max_topics other topics have limits already. Jobs that run count from now on.
CREATE FUNCTION set_limits(
    p_now bigint, p_topic text, p_limits text, p_max_topics integer, OUT done boolean, OUT others bigint
)
LANGUAGE plpgsql AS $$
DECLARE
    v_limits jsonb := p_limits;
    v_before text;
BEGIN
    LOCK TABLE topics IN SHARE ROW EXCLUSIVE MODE; -- two at once would both find room for one more
    SELECT count(*) INTO others FROM topics t WHERE t.limits IS NOT NULL AND t.topic <> p_topic;
    IF v_limits IS NULL THEN
        UPDATE topics SET limits = NULL, limits_at = NULL, fair = false WHERE topic = p_topic;
        -- A row that says nothing would make every claim look at it.
        DELETE FROM topics WHERE topic = p_topic AND paused_until IS NULL;
        done := true;
        RETURN;
    END IF;
    SELECT t.limits ->> 'origin' INTO v_before FROM topics t WHERE t.topic = p_topic;
    IF v_before = 'operator' AND v_limits ->> 'origin' = 'code' THEN
        done := false;
        RETURN;
    END IF;
    IF others >= p_max_topics THEN
        RETURN;
    END IF;
    -- claims by the earlier limits are done with the meters
    PERFORM pg_advisory_xact_lock(topic_limits_lock_key(p_topic));
    INSERT INTO topics (topic, limits, limits_at, fair)
    VALUES (p_topic, v_limits, now_us(p_now), coalesce((v_limits ->> 'fair')::boolean, false))
    ON CONFLICT (topic) DO UPDATE SET limits = excluded.limits, limits_at = excluded.limits_at, fair = excluded.fair;
    -- What another rate has left may be further ahead than this one could ever be, by hours, and would hold it up as
    -- long.
    UPDATE rate_meters m SET used_until = f.furthest
    FROM (
        SELECT r.whole,
               now_us(p_now) + (r.rate ->> 'tolerance_us')::bigint + (r.rate ->> 'interval_us')::bigint AS furthest
        FROM (VALUES (true, v_limits -> 'rate'), (false, v_limits -> 'key_rate')) AS r(whole, rate)
    ) AS f
    WHERE m.topic = p_topic AND (m.tenant = '' AND m.limit_key = '') = f.whole AND m.used_until > f.furthest;
    PERFORM count_running_as_limited(p_topic);
    done := true;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- The first due jobs of each key of these lanes, p_max_jobs of each; in strict order (p_ordered) only the first job of
-- its key. Goes from key to key without a look at the jobs between, p_max_keys keys of a lane at most.
-- p_max_keys_of_tenant: after so many keys of one tenant on to the next (NULL: all of them).
CREATE FUNCTION first_jobs_of_keys(
    p_topic text, p_tasks text[], p_max_jobs integer, p_ordered boolean, p_max_keys integer,
    p_max_keys_of_tenant integer
) RETURNS TABLE (
    tid tid, tenant text, task text, limit_key text, urgency bigint, number bigint, suspect boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    v_task text;
    v_tenant text;
    v_key text;
    v_last text;
    v_of_tenant integer;
    v_head record;
BEGIN
    FOREACH v_task IN ARRAY p_tasks LOOP
        v_tenant := '';
        v_key := '';
        v_of_tenant := 0;
        FOR i IN 1..p_max_keys LOOP
            v_last := v_tenant;
            IF v_of_tenant >= p_max_keys_of_tenant THEN
                SELECT j.tenant, j.limit_key INTO v_tenant, v_key FROM jobs j
                WHERE j.state = 1 AND j.limit_key IS NOT NULL AND j.topic = p_topic AND j.task = v_task
                    AND j.tenant > v_tenant
                ORDER BY j.tenant, j.limit_key LIMIT 1;
            ELSE
                SELECT j.tenant, j.limit_key INTO v_tenant, v_key FROM jobs j
                WHERE j.state = 1 AND j.limit_key IS NOT NULL AND j.topic = p_topic AND j.task = v_task
                    AND (j.tenant, j.limit_key) > (v_tenant, v_key)
                ORDER BY j.tenant, j.limit_key LIMIT 1;
            END IF;
            EXIT WHEN NOT FOUND;
            v_of_tenant := CASE WHEN v_tenant = v_last THEN v_of_tenant + 1 ELSE 1 END;
            IF p_ordered AND v_key <> '' THEN
                SELECT j.ctid, j.task, j.state, -j.priority AS urgency, j.number, j.suspect INTO v_head FROM jobs j
                WHERE j.limit_key IS NOT NULL AND (j.state + 0 = 1 OR j.state + 0 = 0 AND j.reserves > 0)
                    AND j.topic = p_topic AND j.tenant = v_tenant AND j.limit_key = v_key
                ORDER BY j.number LIMIT 1;
                IF v_head.state = 1 AND v_head.task = v_task THEN
                    tid := v_head.ctid; tenant := v_tenant; task := v_task; limit_key := v_key;
                    urgency := v_head.urgency; number := v_head.number; suspect := v_head.suspect;
                    RETURN NEXT;
                END IF;
            ELSE
                RETURN QUERY
                    -- Not '=': the planner must not think that the index of all due jobs has this order, too.
                    SELECT j.ctid, j.tenant, j.task, j.limit_key, -j.priority, j.number, j.suspect FROM jobs j
                    WHERE j.state = 1 AND j.limit_key IS NOT NULL AND j.topic = p_topic AND j.task = v_task
                        AND (j.tenant, j.limit_key) >= (v_tenant, v_key)
                            AND (j.tenant, j.limit_key) <= (v_tenant, v_key)
                    ORDER BY j.tenant, j.limit_key, (-j.priority), j.number LIMIT p_max_jobs;
            END IF;
        END LOOP;
    END LOOP;
END
$$;

-- Up to p_max_jobs due jobs of a limited topic that have room, in the order in which they are to be granted:
-- orders_urgency and orders_number are the place of each among those of other topics. next_start_at: when a rate that
-- refused one lets the next start. Nothing is locked, and no meter moved.
--
-- Looks at the first jobs of each lane; where those are many and have no room, at the first ones of each key, so that a
-- hundred thousand jobs of a full key do not hide the others.
CREATE FUNCTION choose_limited_jobs(
    p_now bigint, p_topic text, p_limits jsonb, p_tasks text[], p_max_jobs integer,
    OUT tids tid[], OUT tenants text[], OUT tasks text[], OUT keys text[], OUT numbers bigint[], OUT suspects boolean[],
    OUT order_urgencies bigint[], OUT order_numbers bigint[], OUT next_start_at bigint
)
LANGUAGE plpgsql AS $$
DECLARE
    v_first_walk constant integer := 32;
    v_walk constant integer := 1000;
    v_max_keys constant integer := 1000;
    v_max_keys_of_tenant constant integer := 50;
    v_fair boolean := coalesce((p_limits ->> 'fair')::boolean, false);
    v_ordered boolean := coalesce((p_limits ->> 'ordered')::boolean, false);
    v_concurrency bigint := (p_limits ->> 'concurrency')::bigint;
    v_in_each_key bigint := CASE WHEN v_ordered THEN 1 ELSE (p_limits ->> 'key_concurrency')::bigint END;
    v_interval bigint := (p_limits #>> '{rate,interval_us}')::bigint;
    v_tolerance bigint := (p_limits #>> '{rate,tolerance_us}')::bigint;
    v_key_interval bigint := (p_limits #>> '{key_rate,interval_us}')::bigint;
    v_key_tolerance bigint := (p_limits #>> '{key_rate,tolerance_us}')::bigint;
    v_total bigint := 0;
    v_running jsonb := '{}';        -- what runs, by tenant (which has no spaces), a space and limit key
    v_of_tenants jsonb := '{}';
    v_meter bigint;
    v_meters jsonb := '{}';         -- by tenant and key
    v_heads jsonb := '{}';          -- first jobs by tenant and key, in strict order
    v_full text[] := '{}';          -- tenants and keys of which nothing can be taken
    v_shut boolean := false;        -- nothing more can be taken of the topic
    v_depth integer := v_first_walk;
    v_last boolean;                 -- whether this is the last look
    v_horizon record;
    v_after_urgency bigint;         -- up to where the first look decided
    v_after_number bigint;
    c_tids tid[]; c_tenants text[]; c_tasks text[]; c_keys text[]; c_urgencies bigint[]; c_numbers bigint[];
    c_suspects boolean[];
    v_count integer;
    i integer;
    g_names text[]; g_next integer[]; g_last integer[]; g_shares bigint[]; -- tenants of one priority
    g integer;
    v_end integer;                  -- where the priority at hand ends
    v_tenant_key text;
    v_number bigint;
    v_state integer;
BEGIN
    SELECT coalesce(sum(r.n), 0), coalesce(jsonb_object_agg(r.tenant || ' ' || r.limit_key, r.n), '{}')
    INTO v_total, v_running
    FROM (
        SELECT j.tenant, j.limit_key, count(*) AS n FROM jobs j
        WHERE j.state = 2 AND j.limit_key IS NOT NULL AND j.topic = p_topic GROUP BY j.tenant, j.limit_key
    ) AS r;
    IF v_fair THEN
        SELECT coalesce(jsonb_object_agg(t.tenant, t.n), '{}') INTO v_of_tenants
        FROM (
            SELECT split_part(l.key, ' ', 1) AS tenant, sum(l.value::bigint) AS n
            FROM jsonb_each_text(v_running) AS l GROUP BY 1
        ) AS t;
    END IF;
    v_meter := coalesce(
        (SELECT m.used_until FROM rate_meters m WHERE m.topic = p_topic AND m.tenant = '' AND m.limit_key = ''), 0
    );
    tids := '{}'; tenants := '{}'; tasks := '{}'; keys := '{}'; numbers := '{}'; suspects := '{}';
    order_urgencies := '{}'; order_numbers := '{}';
    LOOP
        SELECT array_agg(c.tid), array_agg(c.tenant), array_agg(c.task), array_agg(c.limit_key), array_agg(c.urgency),
               array_agg(c.number), array_agg(c.suspect)
        INTO c_tids, c_tenants, c_tasks, c_keys, c_urgencies, c_numbers, c_suspects
        FROM (
            SELECT w.* FROM unnest(p_tasks) AS l(task), LATERAL (
                SELECT j.ctid AS tid, j.tenant, j.task, j.limit_key, -j.priority AS urgency, j.number, j.suspect
                FROM jobs j WHERE j.state = 1 AND j.topic = p_topic AND j.task = l.task
                ORDER BY (-j.priority), j.number LIMIT v_depth
            ) AS w
            -- What the first look came to stands: this one goes on behind it.
            WHERE (v_after_urgency IS NULL OR (w.urgency, w.number) > (v_after_urgency, v_after_number))
                AND (v_full = '{}' OR w.limit_key IS NULL OR w.tenant || ' ' || w.limit_key <> ALL (v_full))
            ORDER BY w.urgency, w.number
        ) AS c;
        -- How far all was seen: no further than in the lane that was seen least far, unless it was seen to its end.
        v_last := v_depth > v_first_walk;
        IF NOT v_last THEN
            SELECT e.urgency, e.number INTO v_horizon
            FROM (
                SELECT max(u.urgency) AS urgency, count(*) AS n,
                       (array_agg(u.number ORDER BY u.urgency DESC, u.number DESC))[1] AS number
                FROM unnest(c_tasks, c_urgencies, c_numbers) AS u(task, urgency, number) GROUP BY u.task
            ) AS e
            WHERE e.n >= v_depth ORDER BY e.urgency, e.number LIMIT 1;
            v_last := NOT FOUND;
        END IF;
        IF v_fair THEN
            IF v_depth < v_walk AND array_position(c_keys, NULL) IS NOT NULL AND NOT v_last THEN
                v_depth := v_walk; -- from before the topic was fair: without a key, and found by walking only
                CONTINUE;
            END IF;
            v_last := true;
        END IF;
        IF v_fair OR v_depth > v_first_walk THEN
            -- Together with the first jobs of each key; sorted by tenant where tenants take turns.
            SELECT array_agg(c.tid), array_agg(c.tenant), array_agg(c.task), array_agg(c.limit_key),
                   array_agg(c.urgency), array_agg(c.number), array_agg(c.suspect)
            INTO c_tids, c_tenants, c_tasks, c_keys, c_urgencies, c_numbers, c_suspects
            FROM (
                SELECT b.* FROM (
                    SELECT u.* FROM unnest(c_tids, c_tenants, c_tasks, c_keys, c_urgencies, c_numbers, c_suspects)
                        AS u(tid, tenant, task, limit_key, urgency, number, suspect)
                    UNION
                    SELECT f.* FROM first_jobs_of_keys(
                        p_topic, p_tasks, p_max_jobs, v_ordered, v_max_keys,
                        CASE WHEN v_fair THEN v_max_keys_of_tenant END
                    ) AS f
                    WHERE (v_after_urgency IS NULL OR (f.urgency, f.number) > (v_after_urgency, v_after_number))
                        AND f.tenant || ' ' || f.limit_key <> ALL (v_full)
                ) AS b
                ORDER BY b.urgency, CASE WHEN v_fair THEN b.tenant COLLATE "C" END, b.number
            ) AS c;
        END IF;

        v_count := coalesce(cardinality(c_tids), 0);
        i := 0;
        v_end := 0;
        LOOP
            EXIT WHEN cardinality(tids) >= p_max_jobs;
            IF NOT v_fair THEN
                i := i + 1;
                EXIT WHEN i > v_count OR NOT v_last
                    AND (c_urgencies[i], c_numbers[i]) > (v_horizon.urgency, v_horizon.number);
            ELSE
                -- Whose turn it is: the tenant that has the smallest share at this moment, of those that have jobs
                -- left.
                g := NULL;
                FOR o IN 1..coalesce(cardinality(g_names), 0) LOOP
                    IF g_next[o] <= g_last[o] AND (
                        g IS NULL OR (g_shares[o], c_numbers[g_next[o]]) < (g_shares[g], c_numbers[g_next[g]])
                    ) THEN
                        g := o;
                    END IF;
                END LOOP;
                IF g IS NULL THEN
                    EXIT WHEN v_end >= v_count;
                    g_names := '{}'; g_next := '{}'; g_last := '{}'; g_shares := '{}';
                    i := v_end + 1;
                    WHILE i <= v_count AND c_urgencies[i] = c_urgencies[v_end + 1] LOOP
                        IF g_names = '{}' OR c_tenants[i] <> g_names[cardinality(g_names)] THEN
                            g_names := g_names || c_tenants[i];
                            g_next := g_next || i;
                            g_last := g_last || i;
                            g_shares := g_shares || coalesce((v_of_tenants ->> c_tenants[i])::bigint, 0) * 1000000
                                / coalesce((p_limits #>> ARRAY['weights', c_tenants[i]])::bigint, 1);
                        ELSE
                            g_last[cardinality(g_last)] := i;
                        END IF;
                        i := i + 1;
                    END LOOP;
                    v_end := i - 1;
                    CONTINUE;
                END IF;
                i := g_next[g];
                g_next[g] := i + 1;
            END IF;

            v_shut := v_total >= v_concurrency;
            EXIT WHEN v_shut;
            v_shut := v_meter - v_tolerance > p_now;
            IF v_shut THEN
                next_start_at := least(next_start_at, v_meter - v_tolerance);
                EXIT;
            END IF;
            IF c_keys[i] <> '' THEN
                v_tenant_key := c_tenants[i] || ' ' || c_keys[i];
                IF coalesce((v_running ->> v_tenant_key)::bigint, 0) >= v_in_each_key THEN
                    v_full := v_full || v_tenant_key;
                    CONTINUE;
                END IF;
                IF v_ordered THEN
                    v_number := (v_heads ->> v_tenant_key)::bigint;
                    IF v_number IS NULL THEN
                        SELECT j.number, j.state INTO v_number, v_state FROM jobs j
                        WHERE j.limit_key IS NOT NULL AND (j.state + 0 = 1 OR j.state + 0 = 0 AND j.reserves > 0)
                            AND j.topic = p_topic AND j.tenant = c_tenants[i] AND j.limit_key = c_keys[i]
                        ORDER BY j.number LIMIT 1;
                        IF v_state <> 1 THEN
                            v_full := v_full || v_tenant_key;
                        END IF;
                        v_heads := v_heads || jsonb_build_object(v_tenant_key, coalesce(v_number, c_numbers[i]));
                    END IF;
                    CONTINUE WHEN v_number <> c_numbers[i];
                END IF;
                IF v_key_interval IS NOT NULL THEN
                    IF NOT v_meters ? v_tenant_key THEN
                        v_meters := v_meters || jsonb_build_object(v_tenant_key, coalesce((
                            SELECT m.used_until FROM rate_meters m
                            WHERE m.topic = p_topic AND m.tenant = c_tenants[i] AND m.limit_key = c_keys[i]
                        ), 0));
                    END IF;
                    v_number := (v_meters ->> v_tenant_key)::bigint;
                    IF v_number - v_key_tolerance > p_now THEN
                        next_start_at := least(next_start_at, v_number - v_key_tolerance);
                        v_full := v_full || v_tenant_key;
                        CONTINUE;
                    END IF;
                    v_meters := v_meters || jsonb_build_object(v_tenant_key,
                        greatest(v_number, p_now) + v_key_interval);
                END IF;
                IF v_in_each_key IS NOT NULL THEN
                    v_running := v_running
                        || jsonb_build_object(v_tenant_key, coalesce((v_running ->> v_tenant_key)::bigint, 0) + 1);
                END IF;
            END IF;
            v_total := v_total + 1;
            v_meter := greatest(v_meter, p_now) + v_interval;
            IF v_fair THEN
                v_number := coalesce((v_of_tenants ->> c_tenants[i])::bigint, 0) + 1;
                v_of_tenants := v_of_tenants || jsonb_build_object(c_tenants[i], v_number);
                g_shares[g] := v_number * 1000000
                    / coalesce((p_limits #>> ARRAY['weights', c_tenants[i]])::bigint, 1);
            END IF;
            tids := tids || c_tids[i]; tenants := tenants || c_tenants[i]; tasks := tasks || c_tasks[i];
            keys := keys || c_keys[i]; numbers := numbers || c_numbers[i]; suspects := suspects || c_suspects[i];
            -- A job is taken no earlier than those of its topic that come before it.
            IF order_numbers = '{}' OR (c_urgencies[i], c_numbers[i]) > (
                order_urgencies[cardinality(order_urgencies)], order_numbers[cardinality(order_numbers)]
            ) THEN
                order_urgencies := order_urgencies || c_urgencies[i];
                order_numbers := order_numbers || c_numbers[i];
            ELSE
                order_urgencies := order_urgencies || order_urgencies[cardinality(order_urgencies)];
                order_numbers := order_numbers || order_numbers[cardinality(order_numbers)];
            END IF;
        END LOOP;
        EXIT WHEN v_last OR v_shut OR cardinality(tids) >= p_max_jobs;
        v_full := ARRAY(SELECT DISTINCT f.line FROM unnest(v_full) AS f(line)); -- at most as many as were looked at
        IF v_in_each_key IS NOT NULL THEN
            -- Also those that are full by what was just chosen.
            v_full := v_full || ARRAY(
                SELECT r.key FROM jsonb_each_text(v_running) AS r
                WHERE r.value::bigint >= v_in_each_key AND strpos(r.key, ' ') < length(r.key)
            );
        END IF;
        v_after_urgency := v_horizon.urgency;
        v_after_number := v_horizon.number;
        v_depth := v_walk;
    END LOOP;
END
$$;

-- Topics with limits of which jobs are due and none has room, by name: of the first p_max_topics that have due jobs.
-- What the caller needs to say why: the first of those jobs, since when it is due, how many run of the topic and of
-- its key, and how far both are with their rates.
CREATE FUNCTION blocked_by_limits(p_now bigint, p_max_topics integer) RETURNS TABLE (
    o_topic text, o_limits text, o_now bigint, o_urgency bigint, o_number bigint, o_tenant text, o_limit_key text,
    o_due_since bigint, o_running bigint, o_of_key bigint, o_meter bigint, o_key_meter bigint
)
LANGUAGE plpgsql AS $$
DECLARE
    v_limits jsonb;
    v_tasks text[];
    v_scanned integer := 0;
BEGIN
    o_now := now_us(p_now);
    FOR o_topic, v_limits IN
        SELECT t.topic, t.limits FROM topics t
        WHERE t.limits IS NOT NULL AND coalesce(t.paused_until <= o_now, true) ORDER BY t.topic COLLATE "C"
    LOOP
        v_tasks := ARRAY(SELECT t.task FROM tasks_of_topic(o_topic) AS t(task));
        CONTINUE WHEN v_tasks = '{}';
        v_scanned := v_scanned + 1;
        EXIT WHEN v_scanned > p_max_topics;
        CONTINUE WHEN (SELECT c.tids <> '{}' FROM choose_limited_jobs(o_now, o_topic, v_limits, v_tasks, 1) AS c);
        SELECT first.* INTO o_urgency, o_number, o_tenant, o_limit_key, o_due_since
        FROM unnest(v_tasks) AS l(task), LATERAL (
            SELECT -j.priority AS urgency, j.number, j.tenant, j.limit_key, j.run_at FROM jobs j
            WHERE j.state = 1 AND j.topic = o_topic AND j.task = l.task ORDER BY (-j.priority), j.number LIMIT 1
        ) AS first
        ORDER BY 1, 2 LIMIT 1;
        CONTINUE WHEN NOT FOUND; -- it was claimed this very moment
        SELECT count(*), count(*) FILTER (WHERE j.tenant = o_tenant AND j.limit_key = o_limit_key)
        INTO o_running, o_of_key
        FROM jobs j WHERE j.state = 2 AND j.limit_key IS NOT NULL AND j.topic = o_topic;
        o_meter := coalesce(
            (SELECT m.used_until FROM rate_meters m WHERE m.topic = o_topic AND m.tenant = '' AND m.limit_key = ''), 0
        );
        o_key_meter := coalesce(
            (SELECT m.used_until FROM rate_meters m
             WHERE m.topic = o_topic AND m.tenant = o_tenant AND m.limit_key = o_limit_key), 0
        );
        o_limits := v_limits;
        RETURN NEXT;
    END LOOP;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off;

-- The best of some due jobs of other topics (p_tids …), and of what has room in these, which have limits. p_topics,
-- p_tasks and p_topic_limits: the lanes of the claim. What is chosen of limited topics is locked, and their meters are
-- moved. unlimited_tids: which of the other jobs are left; moment: that of the choice; next_start_at: when a rate lets
-- the next job start; more: whether there may be more at once; needs_more_slots: whether there may be with more free
-- slots.
CREATE FUNCTION choose_under_limits(
    p_now bigint, p_limited text[], p_topics text[], p_tasks text[], p_topic_limits integer[], p_limit integer,
    p_free_slots integer,
    p_tids tid[], p_urgencies bigint[], p_numbers bigint[], p_suspects boolean[],
    OUT unlimited_tids tid[], OUT tids tid[], OUT topics text[], OUT tasks text[], OUT tenants text[],
    OUT moment bigint,
    OUT next_start_at bigint, OUT more boolean, OUT needs_more_slots boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    v_settling constant bigint := 30000000; -- longer than any claim takes, which waits for no lock beyond 10 s
    v_now bigint;
    v_topic text;
    v_limits jsonb;
    v_limits_at bigint;
    v_strict boolean;
    v_max_jobs integer;
    v_tasks text[];
    v_choice record;
    v_none boolean;
    v_due bigint;
    a_tids tid[] := '{}'; a_topics text[] := '{}'; a_tasks text[] := '{}'; a_tenants text[] := '{}';
    a_keys text[] := '{}'; a_numbers bigint[] := '{}'; a_suspects boolean[] := '{}'; a_stricts boolean[] := '{}';
    a_urgencies bigint[] := '{}'; a_orders bigint[] := '{}';
    v_locked bigint[];
    v_waiting boolean := false; -- whether jobs of a topic with strict limits are due
BEGIN
    FOREACH v_topic IN ARRAY p_limited LOOP
        v_tasks := ARRAY(SELECT DISTINCT l.task FROM unnest(p_topics, p_tasks) AS l(topic, task)
            WHERE l.topic = v_topic);
        IF array_position(v_tasks, NULL) IS NOT NULL THEN
            v_tasks := ARRAY(SELECT t.task FROM tasks_of_topic(v_topic) AS t(task));
        END IF;
        -- A claim that finds nothing due has no reason to wait for others.
        v_tasks := ARRAY(
            SELECT l.task FROM unnest(v_tasks) AS l(task), LATERAL (
                SELECT FROM jobs j WHERE j.state = 1 AND j.topic = v_topic AND j.task = l.task
                ORDER BY (-j.priority), j.number LIMIT 1
            ) AS first
        );
        v_max_jobs := least(p_limit, p_topic_limits[array_position(p_topics, v_topic)]);
        CONTINUE WHEN v_tasks = '{}' OR v_max_jobs <= 0;
        IF NOT pg_try_advisory_xact_lock(topic_limits_lock_key(v_topic)) THEN
            -- Another claim chooses just now, which makes no room: a claim that sees none without the lock need not
            -- wait for it. A hundred workers at a full topic would otherwise queue for the lock to learn that.
            SELECT c.tids = '{}', c.next_start_at INTO v_none, v_due
            FROM topics t, choose_limited_jobs(now_us(p_now), v_topic, t.limits, v_tasks, 1) AS c
            WHERE t.topic = v_topic AND t.limits IS NOT NULL;
            IF v_none THEN
                next_start_at := least(next_start_at, v_due);
                CONTINUE;
            END IF;
            PERFORM pg_advisory_xact_lock(topic_limits_lock_key(v_topic));
        END IF;
        v_now := now_us(p_now);
        SELECT t.limits, t.limits_at INTO v_limits, v_limits_at FROM topics t WHERE t.topic = v_topic;
        CONTINUE WHEN v_limits IS NULL; -- removed meanwhile: the next claim goes the other way
        IF v_limits_at > v_now - v_settling THEN
            -- A claim that was under way when they were set knew nothing of them, and may have granted jobs since.
            PERFORM count_running_as_limited(v_topic);
        END IF;
        v_strict := v_limits ?| ARRAY['concurrency', 'rate', 'key_concurrency', 'key_rate', 'ordered'];
        IF v_strict THEN
            v_waiting := true;
            v_max_jobs := least(v_max_jobs, p_free_slots);
            CONTINUE WHEN v_max_jobs <= 0;
        END IF;
        SELECT c.* INTO v_choice FROM choose_limited_jobs(v_now, v_topic, v_limits, v_tasks, v_max_jobs) AS c;
        next_start_at := least(next_start_at, v_choice.next_start_at);
        CONTINUE WHEN v_choice.tids = '{}';
        -- What another session has locked meanwhile is passed over. By its number, too: another row may have moved in.
        -- OFFSET: with more conditions than its place there would be an index to mistake for a better way.
        v_locked := ARRAY(
            SELECT l.number FROM (
                SELECT j.number, j.state FROM jobs j WHERE j.ctid = ANY (v_choice.tids) OFFSET 0 FOR UPDATE SKIP LOCKED
            ) AS l
            WHERE l.state = 1 AND l.number = ANY (v_choice.numbers)
        );
        SELECT a_tids || array_agg(u.tid ORDER BY u.position), a_tasks || array_agg(u.task ORDER BY u.position),
               a_tenants || array_agg(u.tenant ORDER BY u.position), a_keys || array_agg(u.key ORDER BY u.position),
               a_numbers || array_agg(u.number ORDER BY u.position),
               a_suspects || array_agg(u.suspect ORDER BY u.position),
               a_urgencies || array_agg(u.urgency ORDER BY u.position),
               a_orders || array_agg(u.place ORDER BY u.position),
               a_topics || array_agg(v_topic), a_stricts || array_agg(v_strict)
        INTO a_tids, a_tasks, a_tenants, a_keys, a_numbers, a_suspects, a_urgencies, a_orders, a_topics, a_stricts
        FROM unnest(
            v_choice.tids, v_choice.tasks, v_choice.tenants, v_choice.keys, v_choice.numbers, v_choice.suspects,
            v_choice.order_urgencies, v_choice.order_numbers
        ) WITH ORDINALITY AS u(tid, task, tenant, key, number, suspect, urgency, place, position)
        WHERE u.number = ANY (v_locked);
    END LOOP;

    WITH merged AS (
        SELECT m.*, row_number() OVER (PARTITION BY m.strict ORDER BY m.urgency, m.place, m.position) AS nth
        FROM (
            SELECT p.position, false AS limited, p.urgency, p.number AS place, false AS strict, p.suspect
            FROM unnest(p_urgencies, p_numbers, p_suspects) WITH ORDINALITY AS p(urgency, number, suspect, position)
            UNION ALL
            SELECT a.position, true, a.urgency, a.place, a.strict, a.suspect
            FROM unnest(a_urgencies, a_orders, a_stricts, a_suspects) WITH ORDINALITY
                AS a(urgency, place, strict, suspect, position)
        ) AS m
    ), best AS (
        SELECT m.*, row_number() OVER (ORDER BY m.urgency, m.place, m.position) AS rank FROM merged m
        WHERE NOT m.strict OR p_free_slots IS NULL OR m.nth <= p_free_slots
        ORDER BY m.urgency, m.place, m.position LIMIT p_limit
    ), counted AS (
        SELECT count(*) AS n, count(*) FILTER (WHERE b.strict) AS stricts,
               min(b.rank) FILTER (WHERE b.suspect) AS suspect
        FROM best b
    ), kept AS (
        -- A suspect is granted alone: the only one when it comes first, the end of the choice otherwise.
        SELECT b.* FROM best b, counted c WHERE c.suspect IS NULL OR b.rank <= greatest(c.suspect - 1, 1)
    )
    SELECT c.n >= p_limit OR c.suspect IS NOT NULL,
           coalesce(v_waiting AND c.stricts = p_free_slots AND p_free_slots < p_limit, false),
           ARRAY(SELECT p_tids[k.position] FROM kept k WHERE NOT k.limited),
           ARRAY(SELECT a_tids[k.position] FROM kept k WHERE k.limited ORDER BY k.position),
           ARRAY(SELECT a_topics[k.position] FROM kept k WHERE k.limited ORDER BY k.position),
           ARRAY(SELECT a_tasks[k.position] FROM kept k WHERE k.limited ORDER BY k.position),
           ARRAY(SELECT a_tenants[k.position] FROM kept k WHERE k.limited ORDER BY k.position),
           ARRAY(SELECT a_keys[k.position] FROM kept k WHERE k.limited ORDER BY k.position)
    INTO more, needs_more_slots, unlimited_tids, tids, topics, tasks,
         tenants, a_keys
    FROM counted c;

    -- A meter that n jobs start at one moment is where it was, or at that moment, and n intervals further.
    INSERT INTO rate_meters AS m (topic, tenant, limit_key, used_until)
    SELECT s.topic, s.tenant, s.limit_key, v_now + s.n * s.interval_us
    FROM (
        SELECT u.topic, '' AS tenant, '' AS limit_key, count(*) AS n,
               (t.limits #>> '{rate,interval_us}')::bigint AS interval_us
        FROM unnest(topics) AS u(topic) JOIN topics t ON t.topic = u.topic AND t.limits ? 'rate'
        GROUP BY u.topic, t.limits
        UNION ALL
        SELECT u.topic, u.tenant, u.key, count(*), (t.limits #>> '{key_rate,interval_us}')::bigint
        FROM unnest(topics, tenants, a_keys) AS u(topic, tenant, key)
            JOIN topics t ON t.topic = u.topic AND t.limits ? 'key_rate'
        WHERE u.key <> '' GROUP BY u.topic, u.tenant, u.key, t.limits
    ) AS s
    ON CONFLICT (topic, tenant, limit_key)
    DO UPDATE SET used_until = excluded.used_until + greatest(m.used_until - v_now, 0);
    moment := v_now;
END
$$;

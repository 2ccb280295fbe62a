-- Statistics, from counters and from the ends of indexes, in one statement. Functions that are STABLE see what
-- the statement that calls them sees, so that all of an answer is of one moment, without a transaction around it.

-- How many jobs of each lane are in each state, and which topics are paused. As arrays, one for each column: they cost
-- the driver a fraction of what rows do.
CREATE FUNCTION lanes(p_now bigint, p_tenant text)
RETURNS TABLE (
    o_topics text[], o_tasks text[], o_waiting bigint[], o_ready bigint[], o_running bigint[], o_completed bigint[],
    o_failed bigint[], o_cancelled bigint[], o_paused text[], o_paused_until bigint[]
)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_now bigint := now_us(p_now);
BEGIN
    -- Counters, and what has been appended to them since they were last added up. The latter is summed up by itself:
    -- sums of integers are cheaper than those of bigints.
    SELECT coalesce(array_agg(l.topic), '{}'), coalesce(array_agg(l.task), '{}'),
           coalesce(array_agg(l.waiting), '{}'), coalesce(array_agg(l.ready), '{}'),
           coalesce(array_agg(l.running), '{}'), coalesce(array_agg(l.completed), '{}'),
           coalesce(array_agg(l.failed), '{}'), coalesce(array_agg(l.cancelled), '{}')
    INTO o_topics, o_tasks, o_waiting, o_ready, o_running, o_completed, o_failed, o_cancelled
    FROM (
        SELECT c.topic, c.task, sum(c.waiting)::bigint AS waiting, sum(c.ready)::bigint AS ready,
               sum(c.running)::bigint AS running, sum(c.completed)::bigint AS completed,
               sum(c.failed)::bigint AS failed, sum(c.cancelled)::bigint AS cancelled
        FROM (
            SELECT topic, task, waiting, ready, running, completed, failed, cancelled
            FROM job_counts WHERE p_tenant IS NULL OR tenant = p_tenant
            UNION ALL
            SELECT topic, task, sum(waiting), sum(ready), sum(running), sum(completed), sum(failed), sum(cancelled)
            FROM counter_deltas WHERE p_tenant IS NULL OR tenant = p_tenant GROUP BY topic, task
        ) AS c
        GROUP BY c.topic, c.task
    ) AS l
    WHERE l.waiting <> 0 OR l.ready <> 0 OR l.running <> 0 OR l.completed <> 0 OR l.failed <> 0 OR l.cancelled <> 0;
    SELECT coalesce(array_agg(t.topic), '{}'), coalesce(array_agg(t.paused_until), '{}')
    INTO o_paused, o_paused_until
    FROM topics t WHERE t.paused_until > v_now;
    RETURN NEXT;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_sort = off SET max_parallel_workers_per_gather = 0;

-- When the ready job of these lanes that was never delayed and has waited longest became due. Such jobs are due in the
-- order of their numbers.
CREATE FUNCTION oldest_never_delayed(
    p_topics text[], p_tasks text[], p_tenant text, p_first_look integer, p_max_levels integer, p_max_steps integer
) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_lanes integer := cardinality(p_topics);
    v_run_at bigint;
BEGIN
    -- With many lanes, first among the oldest of all jobs: nearly always it is the very first that is not delayed. Not
    -- beside a great many dead rows, which may be in front of it: forty cost as much as a lane, but only the first scan
    -- that passes over them pays for that, and most are in front of the lanes' jobs as well. A standby does not know
    -- how many it has.
    IF v_lanes > 100 AND NOT pg_is_in_recovery() AND pg_stat_get_dead_tuples('jobs'::regclass) < 1000 * v_lanes THEN
        SELECT first.run_at INTO v_run_at
        FROM (
            SELECT j.number, j.state, j.run_at, j.created_at, j.tenant FROM jobs j
            ORDER BY j.number LIMIT p_first_look
        ) AS first
        WHERE first.state = 1 AND first.run_at <= first.created_at AND (p_tenant IS NULL OR first.tenant = p_tenant)
        ORDER BY first.number LIMIT 1;
        IF FOUND THEN
            RETURN v_run_at;
        END IF;
    END IF;
    -- Otherwise the first one of each lane and priority. From one priority to the next without reading what is between.
    RETURN (WITH RECURSIVE heads (topic, task, urgency, run_at, counts) AS (
        SELECT l.topic, l.task, h.urgency, h.run_at, h.counts
        FROM unnest(p_topics, p_tasks) AS l(topic, task), LATERAL (
            SELECT -j.priority AS urgency, j.run_at,
                   j.run_at <= j.created_at AND (p_tenant IS NULL OR j.tenant = p_tenant) AS counts
            FROM jobs j
            WHERE j.state = 1 AND j.topic = l.topic AND j.task = l.task
            ORDER BY (-j.priority), j.number LIMIT 1
        ) AS h
        UNION ALL
        SELECT v.topic, v.task, h.urgency, h.run_at, h.counts
        FROM heads v, LATERAL (
            SELECT -j.priority AS urgency, j.run_at,
                   j.run_at <= j.created_at AND (p_tenant IS NULL OR j.tenant = p_tenant) AS counts
            FROM jobs j
            WHERE j.state = 1 AND j.topic = v.topic AND j.task = v.task AND (-j.priority) > v.urgency
            ORDER BY (-j.priority), j.number LIMIT 1
        ) AS h
    )
    SELECT min(CASE WHEN v.counts THEN v.run_at ELSE (
        SELECT n.run_at
        FROM (
            SELECT j.run_at, j.created_at, j.tenant FROM jobs j
            WHERE j.state = 1 AND j.topic = v.topic AND j.task = v.task AND (-j.priority) = v.urgency
            ORDER BY j.number LIMIT p_max_steps / v_lanes + 1
        ) AS n
        WHERE n.run_at <= n.created_at AND (p_tenant IS NULL OR n.tenant = p_tenant) LIMIT 1
    ) END)
    FROM (SELECT * FROM heads LIMIT p_max_levels) AS v);
END
$$;

-- All of it. What happened comes as arrays, too: events by minute, durations (metrics 5 and 6) over the whole time; for
-- those the minute is NULL.
CREATE FUNCTION stats(
    p_now bigint, p_window_us bigint, p_tenant text, p_few_jobs bigint, p_first_look integer, p_max_levels integer,
    p_max_steps integer
) RETURNS TABLE (
    o_topics text[], o_waiting bigint[], o_ready bigint[], o_running bigint[], o_completed bigint[],
    o_failed bigint[], o_cancelled bigint[], o_paused text[], o_paused_until bigint[], o_delayed bigint,
    o_oldest_due_at bigint, o_minutes bigint[], o_metrics integer[], o_buckets integer[], o_numbers bigint[],
    o_totals bigint[]
)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_now bigint := now_us(p_now);
    v_since bigint := v_now - p_window_us;
    v_tasks text[];
    v_waiting bigint;
    v_pending bigint;
    v_ready_topics text[];
    v_ready_tasks text[];
BEGIN
    SELECT l.o_topics, l.o_tasks, l.o_waiting, l.o_ready, l.o_running, l.o_completed, l.o_failed, l.o_cancelled,
           l.o_paused, l.o_paused_until
    INTO o_topics, v_tasks, o_waiting, o_ready, o_running, o_completed, o_failed, o_cancelled, o_paused,
         o_paused_until
    FROM lanes(v_now, p_tenant) AS l;
    SELECT coalesce(sum(l.waiting), 0), coalesce(sum(l.waiting + l.ready), 0),
           array_agg(l.topic) FILTER (WHERE l.ready > 0), array_agg(l.task) FILTER (WHERE l.ready > 0)
    INTO v_waiting, v_pending, v_ready_topics, v_ready_tasks
    FROM unnest(o_topics, v_tasks, o_waiting, o_ready) AS l(topic, task, waiting, ready);

    IF p_tenant <> 'root' AND v_pending <= p_few_jobs THEN
        SELECT count(*) FILTER (WHERE j.state = 0 AND j.run_at > v_now), min(j.run_at) FILTER (WHERE j.run_at <= v_now)
        INTO o_delayed, o_oldest_due_at
        FROM jobs j WHERE j.tenant = p_tenant AND j.tenant <> 'root' AND j.state < 2 AND j.blocked = 0;
    ELSE
        o_delayed := 0;
        IF v_waiting > 0 THEN
            -- Not those that are due, but are not promoted yet, because no worker has claimed since; nor those that
            -- wait for other jobs. Orders and OFFSET 0 name the index: other conditions would lead to others.
            SELECT v_waiting
                 - (SELECT count(*) FROM (SELECT j.tenant FROM jobs j
                                          WHERE j.state = 0 AND j.blocked = 0 AND j.run_at <= v_now
                                          ORDER BY j.run_at OFFSET 0) AS due
                    WHERE p_tenant IS NULL OR due.tenant = p_tenant)
                 - (SELECT count(*) FROM (SELECT j.tenant FROM jobs j WHERE j.blocked > 0 AND j.state = 0
                                          ORDER BY j.number OFFSET 0) AS behind
                    WHERE p_tenant IS NULL OR behind.tenant = p_tenant)
            INTO o_delayed;
        END IF;
        -- The first that became due: of jobs that were delayed and not promoted yet, of promoted ones, and of those
        -- that were never delayed.
        SELECT least(
            (SELECT j.run_at FROM jobs j
             WHERE j.state = 0 AND j.blocked = 0 AND j.run_at <= v_now AND (p_tenant IS NULL OR j.tenant = p_tenant)
             ORDER BY j.run_at LIMIT 1),
            (SELECT j.run_at FROM jobs j
             WHERE j.state = 1 AND j.run_at > j.created_at AND (p_tenant IS NULL OR j.tenant = p_tenant)
             ORDER BY j.run_at LIMIT 1),
            oldest_never_delayed(v_ready_topics, v_ready_tasks, p_tenant, p_first_look, p_max_levels, p_max_steps)
        ) INTO o_oldest_due_at;
    END IF;

    IF p_tenant IS NULL THEN
        -- What was appended is read once, there may be a lot of it, and summed up by itself. Minutes later than now
        -- were counted before the clock was set back.
        WITH recent AS MATERIALIZED (
            SELECT t.minute, t.enqueued_events, t.completed_events, t.failed_events, t.cancelled_events,
                   t.retried_events, t.run_us,
                   t.run_buckets, t.wait_us, t.wait_buckets
            FROM counter_deltas t WHERE t.minute BETWEEN v_since AND v_now
        ), happened (minute, metric, bucket, n, total) AS (
            SELECT m.minute, m.metric::integer, 0, m.n, 0::bigint
            FROM minute_metrics m WHERE m.minute BETWEEN v_since AND v_now AND m.metric < 5
            UNION ALL
            SELECT NULL, m.metric, m.bucket, sum(m.n)::bigint, sum(m.total)::bigint
            FROM minute_metrics m WHERE m.minute BETWEEN v_since AND v_now AND m.metric >= 5 GROUP BY m.metric, m.bucket
            UNION ALL
            SELECT CASE WHEN e.metric < 5 THEN r.minute END, e.metric, 0, e.n, e.total
            FROM (
                SELECT minute, sum(enqueued_events) AS enqueued, sum(completed_events) AS completed,
                       sum(failed_events) AS failed,
                       sum(cancelled_events) AS cancelled, sum(retried_events) AS retried,
                       sum(run_us)::bigint AS run_us,
                       sum(wait_us)::bigint AS wait_us
                FROM recent GROUP BY minute
            ) AS r, LATERAL (
                VALUES (0, r.enqueued, 0), (1, r.completed, 0), (2, r.failed, 0), (3, r.cancelled, 0),
                       (4, r.retried, 0), (5, 0, r.run_us), (6, 0, r.wait_us)
            ) AS e(metric, n, total)
            WHERE e.n > 0 OR e.total > 0
            UNION ALL
            SELECT NULL, 5, bucket, count(*), 0 FROM (SELECT unnest(run_buckets) AS bucket FROM recent) AS runs
            GROUP BY bucket
            UNION ALL
            SELECT NULL, 6, bucket, count(*), 0 FROM (SELECT unnest(wait_buckets) AS bucket FROM recent) AS waits
            GROUP BY bucket
        )
        SELECT coalesce(array_agg(h.minute), '{}'), coalesce(array_agg(h.metric), '{}'),
               coalesce(array_agg(h.bucket), '{}'), coalesce(array_agg(h.n), '{}'), coalesce(array_agg(h.total), '{}')
        INTO o_minutes, o_metrics, o_buckets, o_numbers, o_totals
        FROM happened h;
    END IF;
    RETURN NEXT;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_incremental_sort = off
SET max_parallel_workers_per_gather = 0;

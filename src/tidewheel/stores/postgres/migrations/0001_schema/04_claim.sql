-- Claim due jobs; return jobs whose lease has ended.

-- End up to p_limit leases whose time is over, and as many jobs past expires_at. p_messages: the texts, from
-- stores/terminal_errors.py: the message of a lost worker (worker, attempt), that of an expired job (since when), and
-- the summary of one cancelled on request. p_maintained_until: what ended before this has been dealt with, as far as
-- the caller knows. rescued_jobs: each of these jobs, as JSON in the order of model.RescuedJob. p_latest_trusted: the
-- latest time the caller believes (NULL: any). A clock that is ahead of it has just stepped, and cancels nothing that
-- is not over by then.
CREATE FUNCTION rescue(
    p_now bigint, p_limit integer, p_maintained_until bigint, p_messages text[], p_latest_trusted bigint,
    OUT returned integer, OUT failed integer, OUT cancelled integer, OUT expired integer, OUT topics text[],
    OUT rescued_jobs text[]
)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_us(p_now);
    v_job record;
    v_counted boolean;
    v_attempt integer;
    v_message text;
    v_state text;
BEGIN
    PERFORM unbatch_expired(v_now, p_limit, p_maintained_until);
    returned := 0; failed := 0; cancelled := 0; expired := 0; topics := '{}'; rescued_jobs := '{}';
    FOR v_job IN
        -- '<=': at its end a lease no longer holds, and its holder is refused from the same instant.
        SELECT id, state, topic, task, tenant, correlation_id, attempt, max_attempts, worker, started_at,
               counts_if_lost, cancel_requested
        FROM jobs
        WHERE state = 2 AND leased_until <= v_now AND leased_until >= coalesce(p_maintained_until, 0)
        ORDER BY leased_until, number LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    LOOP
        v_counted := v_job.counts_if_lost;
        v_attempt := v_job.attempt - (NOT v_counted)::integer;
        v_message := format(p_messages[1], v_job.attempt);
        v_state := CASE
            WHEN v_job.cancel_requested THEN 'cancelled'
            WHEN v_counted AND v_attempt >= v_job.max_attempts THEN 'failed'
            ELSE 'pending'
        END;
        rescued_jobs := rescued_jobs || json_build_array(
            v_job.id, v_job.topic, v_job.task, v_job.tenant, v_job.correlation_id, v_job.attempt, v_job.worker, v_state,
            CASE WHEN v_job.cancel_requested THEN 'job_canceled' ELSE 'worker_lost' END
        )::text;
        IF v_job.cancel_requested THEN
            PERFORM finish(v_job.id, 5, v_now, v_attempt, NULL, p_messages[3], false, p_timeouts => 1);
            cancelled := cancelled + 1;
            CONTINUE;
        END IF;
        IF v_counted THEN
            PERFORM add_attempt(
                v_job.id, v_job.tenant, v_attempt, v_job.worker, v_job.started_at, v_now,
                json_build_object('code', 'worker_lost', 'message', v_message)::text
            );
            IF v_state = 'failed' THEN
                PERFORM finish(v_job.id, 4, v_now, v_attempt, NULL, left('worker_lost: ' || v_message, 200), false,
                               p_timeouts => 1);
                failed := failed + 1;
                CONTINUE;
            END IF;
        END IF;
        -- Suspect: any job of a lost worker may have killed it, so its next grant is alone.
        UPDATE jobs
        SET state = 1, attempt = v_attempt, suspect = true, counts_if_lost = false, leased_until = NULL, worker = NULL,
            claimed_at = NULL, started_at = NULL,
            error_summary = CASE WHEN v_counted THEN left('worker_lost: ' || v_message, 200) ELSE error_summary END,
            timeouts = coalesce(timeouts, 0) + 1
        WHERE id = v_job.id;
        INSERT INTO counter_deltas (minute, tenant, topic, task, ready, running)
        VALUES (minute_of(v_now), v_job.tenant, v_job.topic, v_job.task, 1, -1);
        returned := returned + 1;
        topics := topics || v_job.topic;
    END LOOP;
    FOR v_job IN
        SELECT id, topic, task, tenant, correlation_id, run_at, attempt FROM jobs
        WHERE state < 2 AND attempt = 0 AND expires_at IS NOT NULL AND expires_at <= least(v_now, p_latest_trusted)
            AND expires_at >= coalesce(p_maintained_until, 0)
        ORDER BY expires_at, number LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    LOOP
        v_message := 'expired: ' || format(
            p_messages[2],
            to_char(to_timestamp(v_job.run_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"')
        );
        PERFORM finish(v_job.id, 5, v_now, v_job.attempt, NULL, left(v_message, 200), false);
        rescued_jobs := rescued_jobs || json_build_array(
            v_job.id, v_job.topic, v_job.task, v_job.tenant, v_job.correlation_id, v_job.attempt, NULL, 'cancelled',
            'expired'
        )::text;
        expired := expired + 1;
    END LOOP;
    IF current_setting('tidewheel.parents_ended', true) = 'true' THEN
        topics := topics || (SELECT r.topics FROM release_dependents(p_now, 1000, false) AS r);
    END IF;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off;

-- Delayed jobs that have become due join the ready ones. Bounded, so that a million due at once are taken in by
-- many short claims instead of one long one.
CREATE FUNCTION promote(p_now bigint, p_limit integer, p_maintained_until bigint) RETURNS void
LANGUAGE sql AS $$
    WITH promoted AS (
        UPDATE jobs SET state = 1
        WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM jobs WHERE state = 0 AND blocked = 0 AND run_at <= p_now
                AND run_at >= coalesce(p_maintained_until, 0)
            ORDER BY run_at LIMIT p_limit
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING tenant, topic, task
    )
    INSERT INTO counter_deltas (minute, tenant, topic, task, waiting, ready)
    SELECT minute_of(p_now), tenant, topic, task, -count(*), count(*) FROM promoted GROUP BY tenant, topic, task
$$;

-- The best ready jobs of these lanes, locked. Lanes are arrays of equal length; p_topic_limits says how many jobs of
-- the lane's topic may be taken (NULL = any number). A lane may be given in parts: p_after_urgencies and
-- p_after_numbers say after which job one begins (NULL = at its start), p_end_urgencies before which urgency it ends
-- (NULL = at its end). Each job comes with its tenant and the position of its lane. more: the limit or a job that must
-- run alone ended the choice. batchable: these jobs may share a row of leased_batches.
--
-- p_keep_suspects: what becomes of a job that must run alone is decided by the caller, for whom urgencies, numbers and
-- suspects are. A job others have locked is passed over. With several lanes the choice is made first without locks, to
-- learn how many to take of each, so that no lane has more locked than is taken.
CREATE FUNCTION choose_jobs(
    p_topics text[], p_tasks text[], p_topic_limits integer[], p_after_urgencies bigint[], p_after_numbers bigint[],
    p_end_urgencies bigint[],
    p_limit integer, p_keep_suspects boolean,
    OUT tids tid[], OUT tenants text[], OUT lanes integer[], OUT more boolean, OUT batchable boolean,
    OUT urgencies bigint[], OUT numbers bigint[], OUT suspects boolean[]
)
LANGUAGE plpgsql AS $$
DECLARE
    v_lanes integer[];
    v_quotas integer[];
    v_depths integer[];
    v_deeper boolean;
    v_alone integer;
BEGIN
    IF cardinality(p_topics) = 1 THEN
        v_lanes := ARRAY[1];
    ELSE
        v_lanes := ARRAY(
            SELECT l.lane::integer
            FROM unnest(p_topics, p_tasks, p_topic_limits, p_after_urgencies, p_after_numbers, p_end_urgencies)
                WITH ORDINALITY
                    AS l(topic, task, room, urgency, number, before, lane),
                -- Not EXISTS (…): that may become a join with all ready jobs.
                LATERAL (
                    SELECT FROM jobs j
                    WHERE j.state = 1 AND j.topic = l.topic AND j.task = l.task
                        AND ((-j.priority), j.number)
                            > (coalesce(l.urgency, -9223372036854775808), coalesce(l.number, -9223372036854775808))
                        AND (-j.priority) < coalesce(l.before, 9223372036854775807)
                    ORDER BY (-j.priority), j.number LIMIT 1
                ) AS first
            WHERE coalesce(l.room, 1) > 0
        );
    END IF;
    IF cardinality(v_lanes) > 1 THEN
        -- A thousand lanes are not read to the limit each: twice as far as their share of it, and deeper only where
        -- all that was seen is among the best.
        v_depths := array_fill(
            least(p_limit, greatest(2 * p_limit / cardinality(v_lanes), 4)), ARRAY[cardinality(v_lanes)]
        );
        LOOP
            SELECT array_agg(q.lane), array_agg(q.n), array_agg(least(8 * q.depth, p_limit)),
                   bool_or(q.n = q.depth AND q.depth < p_limit)
            INTO v_lanes, v_quotas, v_depths, v_deeper
            FROM (
                SELECT best.lane, min(best.depth) AS depth, count(*)::integer AS n
                FROM (
                    SELECT placed.lane, placed.depth FROM (
                        SELECT heads.*, row_number() OVER (PARTITION BY topic ORDER BY urgency, number) AS place
                        FROM (
                            SELECT l.lane, l.depth, p_topics[l.lane] AS topic, p_topic_limits[l.lane] AS room,
                                   h.urgency, h.number
                            FROM unnest(v_lanes, v_depths) AS l(lane, depth),
                                LATERAL (
                                    SELECT -j.priority AS urgency, j.number FROM jobs j
                                    WHERE j.state = 1 AND j.topic = p_topics[l.lane] AND j.task = p_tasks[l.lane]
                                        AND ((-j.priority), j.number)
                                            > (coalesce(p_after_urgencies[l.lane], -9223372036854775808),
                                               coalesce(p_after_numbers[l.lane], -9223372036854775808))
                                        AND (-j.priority) < coalesce(p_end_urgencies[l.lane], 9223372036854775807)
                                    ORDER BY (-j.priority), j.number LIMIT least(l.depth, p_topic_limits[l.lane])
                                ) AS h
                        ) AS heads
                    ) AS placed
                    WHERE coalesce(placed.place <= placed.room, true)
                    ORDER BY placed.urgency, placed.number LIMIT p_limit
                ) AS best
                GROUP BY best.lane
            ) AS q;
            EXIT WHEN v_deeper IS NOT TRUE;
        END LOOP;
    END IF;
    SELECT coalesce(array_agg(c.tid), '{}'), array_agg(c.tenant), array_agg(l.lane), array_agg(c.urgency),
           array_agg(c.number), array_agg(c.suspect), bool_and(c.plain) AND min(c.tenant) = max(c.tenant)
    INTO tids, tenants, lanes, urgencies, numbers, suspects, batchable
    FROM unnest(v_lanes, v_quotas) AS l(lane, quota),
        LATERAL (
            SELECT j.ctid AS tid, j.tenant, -j.priority AS urgency, j.number, j.suspect,
                   j.key IS NULL AND j.lease_us IS NULL AND j.limit_key IS NULL AND NOT j.has_dependents AS plain
            FROM jobs j
            WHERE j.state = 1 AND j.topic = p_topics[l.lane] AND j.task = p_tasks[l.lane]
                AND ((-j.priority), j.number)
                    > (coalesce(p_after_urgencies[l.lane], -9223372036854775808),
                       coalesce(p_after_numbers[l.lane], -9223372036854775808))
                AND (-j.priority) < coalesce(p_end_urgencies[l.lane], 9223372036854775807)
            ORDER BY (-j.priority), j.number LIMIT coalesce(l.quota, least(p_limit, p_topic_limits[l.lane]))
            FOR UPDATE SKIP LOCKED
        ) AS c;
    more := cardinality(tids) >= p_limit;
    IF true = ANY (suspects) AND NOT p_keep_suspects THEN
        -- A suspect is granted alone: the only one when it comes first, the end of the choice otherwise.
        SELECT array_agg(b.tid ORDER BY b.place), array_agg(b.tenant ORDER BY b.place),
               array_agg(b.lane ORDER BY b.place), min(b.place) FILTER (WHERE b.suspect)
        INTO tids, tenants, lanes, v_alone
        FROM (
            SELECT u.tid, u.tenant, u.lane, u.suspect, row_number() OVER (ORDER BY u.urgency, u.number) AS place
            FROM unnest(tids, tenants, lanes, urgencies, numbers, suspects)
                AS u(tid, tenant, lane, urgency, number, suspect)
        ) AS b;
        tids := tids[1:greatest(v_alone - 1, 1)];
        tenants := tenants[1:cardinality(tids)];
        lanes := lanes[1:cardinality(tids)];
        more := true;
    END IF;
END
$$;

-- When the next lease ends, the next job expires and the next delayed job is due: one look at the left end of each
-- index that a claim maintains before it chooses. Each is ordered, so that no other index of such jobs could be read
-- from end to end instead. p_maintained_until: what ended before this has been dealt with; then leases that have not
-- ended at p_now are not looked at either: most that are granted now were over long before, and all of those might
-- still be in the way.
CREATE FUNCTION next_deadlines(p_maintained_until bigint, p_now bigint)
RETURNS TABLE (leased_until bigint, expires_at bigint, run_at bigint, pauses boolean)
LANGUAGE sql STABLE AS $$
    SELECT least(
               (SELECT j.leased_until FROM jobs j
                WHERE j.state = 2 AND j.leased_until >= coalesce(p_maintained_until, 0)
                    AND j.leased_until <= CASE WHEN p_maintained_until IS NULL THEN 9223372036854775807 ELSE p_now END
                ORDER BY j.leased_until LIMIT 1),
               (SELECT p.leased_until FROM leased_batches p
                WHERE p.leased_until >= coalesce(p_maintained_until, 0)
                    AND p.leased_until <= CASE WHEN p_maintained_until IS NULL THEN 9223372036854775807 ELSE p_now END
                ORDER BY p.leased_until LIMIT 1)
           ),
           (SELECT j.expires_at FROM jobs j
            WHERE j.expires_at IS NOT NULL AND j.state < 2 AND j.attempt = 0
                AND j.expires_at >= coalesce(p_maintained_until, 0)
            ORDER BY j.expires_at LIMIT 1),
           (SELECT j.run_at FROM jobs j WHERE j.state = 0 AND j.blocked = 0
           AND j.run_at >= coalesce(p_maintained_until, 0)
            ORDER BY j.run_at LIMIT 1),
           EXISTS (SELECT FROM topics)
$$;

-- Grant up to p_limit due jobs of these lanes. A NULL task means every task of its topic.
--
-- p_after_urgencies, p_after_numbers, p_end_urgencies: the parts of lanes to look at; starting after what was granted
-- before saves a walk over what vacuum has not removed yet. All NULL: everything is looked at, after ended leases were
-- brought back and delayed jobs that are due were promoted; so it is when p_full_scan_if_empty is true and nothing was
-- found in the parts. What was found need not wait for that, even if it is little: a worker with room for more claims
-- again at once. Only under a clock of the caller's own is nothing left for the next call. p_min_batch: how many jobs
-- are worth a row that they share. p_run_maintenance: do that before the parts are looked at, too. p_maintained_until:
-- up to when it has been done (NULL: it is not known).
--
-- The last row is no job: o_created_at is the time, o_run_at the moment at which a claim may find more (the time
-- itself: at once; NULL: nothing is known), o_number the moment up to which maintenance was done (NULL: none
-- was), o_fence what it took to look at everything (NULL: that was not done), o_payload what was
-- rescued on the way (a JSON list, or NULL), o_checkpoint which of the topics have limits (likewise), o_losses 1 if
-- a larger p_free_slots might have yielded more jobs.
--
-- Topics with limits go another way (11_topic_limits.sql): claims scan them from the start, and never put their jobs
-- into a batch. p_free_slots: so many jobs of topics with strict limits may be granted (NULL: any number).
-- p_latest_trusted: as for rescue.
--
-- p_reports_starts: the caller says which jobs it starts. Otherwise a claim of one job counts as its start.
CREATE FUNCTION claim(
    p_now bigint, p_worker text, p_topics text[], p_tasks text[], p_topic_limits integer[], p_after_urgencies bigint[],
    p_after_numbers bigint[], p_end_urgencies bigint[], p_limit integer, p_lease_us bigint, p_maintained_until bigint,
    p_run_maintenance boolean,
    p_full_scan_if_empty boolean, p_messages text[], p_store_handle bigint, p_min_batch integer, p_free_slots integer,
    p_latest_trusted bigint, p_reports_starts boolean
) RETURNS TABLE (
    o_id uuid, o_fence bigint, o_topic text, o_task text, o_tenant text, o_priority bigint, o_attempt integer,
    o_max_attempts integer, o_timeout_us bigint, o_retry text, o_lease_us bigint, o_payload text, o_raw bytea,
    o_format smallint, o_checkpoint text, o_number bigint, o_created_at bigint, o_run_at bigint, o_key text,
    o_correlation_id text, o_user_id text, o_service_id text, o_headers text, o_losses integer
)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_us(p_now);
    v_topics text[] := p_topics;
    v_tasks text[] := p_tasks;
    v_topic_limits integer[] := p_topic_limits;
    v_urgencies bigint[] := p_after_urgencies;
    v_numbers bigint[] := p_after_numbers;
    v_end_urgencies bigint[] := p_end_urgencies;
    v_tids tid[];
    v_tenants text[];
    v_lanes integer[];
    v_more boolean;
    v_batchable boolean;
    v_batches bigint[];
    v_due bigint;
    v_leased bigint;   -- what comes next: the end of a lease, an expiry, a delayed job
    v_expires bigint;
    v_waiting bigint;
    v_maintained_until bigint;
    v_pauses boolean;
    v_pause bigint;
    v_limited text[] := '{}';   -- topics with limits, if they are not paused
    v_choice record;
    v_left tid[];               -- what is left of the other jobs
    l_tids tid[];               -- what was chosen of limited topics
    l_topics text[];
    l_tasks text[];
    l_tenants text[];
    v_moment bigint;            -- when
    v_room bigint;              -- when a rate of theirs lets the next job start
    v_needs_more_slots boolean := false;
    v_batching boolean;
    v_updated tid[];
    v_began timestamptz;
    v_cost bigint;
    v_told text[]; -- jobs that were rescued on the way
BEGIN
    LOOP
        IF v_numbers IS NULL THEN
            v_began := clock_timestamp();
        END IF;
        IF v_numbers IS NULL OR p_run_maintenance THEN
            v_maintained_until := v_now;
            SELECT h.leased_until, h.expires_at, h.run_at, h.pauses INTO v_leased, v_expires, v_waiting, v_pauses
            FROM next_deadlines(p_maintained_until, v_now) AS h;
            IF least(v_leased, v_expires, v_waiting) <= v_now THEN
                IF least(v_leased, v_expires) <= v_now THEN
                    SELECT v_told || r.rescued_jobs INTO v_told
                    FROM rescue(p_now, 1000, p_maintained_until, p_messages, p_latest_trusted) AS r;
                END IF;
                PERFORM promote(v_now, 10000, p_maintained_until);
                SELECT h.leased_until, h.expires_at, h.run_at INTO v_leased, v_expires, v_waiting
                FROM next_deadlines(p_maintained_until, v_now) AS h;
            END IF;
            v_maintained_until := least(v_maintained_until, v_leased, v_expires, v_waiting);
        ELSE
            v_pauses := EXISTS (SELECT FROM topics);
        END IF;
        v_limited := '{}';
        IF v_pauses THEN
            v_limited := ARRAY(
                SELECT p.topic FROM topics p
                WHERE p.topic = ANY (p_topics) AND p.limits IS NOT NULL AND coalesce(p.paused_until <= v_now, true)
                ORDER BY p.topic
            );
        END IF;
        IF v_pauses OR array_position(p_tasks, NULL) IS NOT NULL THEN
            WITH RECURSIVE lanes AS (
                SELECT DISTINCT ON (l.topic, t.task, l.before)
                    l.topic, t.task, l.room, l.urgency, l.number, l.before, l.lane
                FROM unnest(v_topics, v_tasks, v_topic_limits, v_urgencies, v_numbers, v_end_urgencies) WITH ORDINALITY
                        AS l(topic, task, room, urgency, number, before, lane),
                    LATERAL (
                        SELECT l.task WHERE l.task IS NOT NULL
                        UNION ALL
                        SELECT t.task FROM tasks_of_topic(l.topic) AS t(task) WHERE l.task IS NULL
                    ) AS t
                ORDER BY l.topic, t.task, l.before, l.lane
            )
            SELECT array_agg(lanes.topic), array_agg(lanes.task), array_agg(lanes.room),
                   CASE WHEN v_numbers IS NOT NULL THEN array_agg(lanes.urgency) END,
                   CASE WHEN v_numbers IS NOT NULL THEN array_agg(lanes.number) END,
                   CASE WHEN v_numbers IS NOT NULL THEN array_agg(lanes.before) END
            INTO v_topics, v_tasks, v_topic_limits, v_urgencies, v_numbers, v_end_urgencies
            FROM lanes
            WHERE NOT EXISTS (SELECT FROM topics p WHERE p.topic = lanes.topic AND p.paused_until > v_now)
                AND lanes.topic <> ALL (v_limited);
        END IF;
        SELECT chosen.* INTO v_choice
        FROM choose_jobs(v_topics, v_tasks, v_topic_limits, v_urgencies, v_numbers, v_end_urgencies, p_limit,
            v_limited <> '{}') AS chosen;
        v_tids := v_choice.tids;
        v_more := v_choice.more;
        EXIT WHEN v_more OR v_began IS NOT NULL OR NOT p_full_scan_if_empty OR v_tids <> '{}' AND p_now IS NULL;
        -- All parts of the lanes: of each lane, the one that has no end.
        SELECT array_agg(l.topic), array_agg(l.task), array_agg(l.room) INTO v_topics, v_tasks, v_topic_limits
        FROM unnest(p_topics, p_tasks, p_topic_limits, p_end_urgencies) AS l(topic, task, room, before)
            WHERE l.before IS NULL;
        v_urgencies := NULL;
        v_numbers := NULL;
        v_end_urgencies := NULL;
    END LOOP;
    IF v_began IS NOT NULL THEN
        v_cost := extract(epoch FROM clock_timestamp() - v_began) * 1000000;
    END IF;
    v_tenants := v_choice.tenants;
    v_lanes := v_choice.lanes;
    v_batchable := v_choice.batchable;
    IF v_limited <> '{}' THEN
        SELECT c.unlimited_tids, c.tids, c.topics, c.tasks, c.tenants, c.moment, c.next_start_at, c.more,
               c.needs_more_slots
        INTO v_left, l_tids, l_topics, l_tasks, l_tenants, v_moment, v_room, v_more, v_needs_more_slots
        FROM choose_under_limits(
            p_now, v_limited, p_topics, p_tasks, p_topic_limits, p_limit, p_free_slots, v_tids, v_choice.urgencies,
            v_choice.numbers,
            v_choice.suspects
        ) AS c;
        -- What is left of the others, which were chosen without a look at these.
        SELECT coalesce(array_agg(t.tid), '{}'), array_agg(t.tenant), array_agg(t.lane) INTO v_tids, v_tenants, v_lanes
        FROM unnest(v_tids, v_tenants, v_lanes) AS t(tid, tenant, lane) WHERE t.tid = ANY (v_left);
    END IF;
    -- Again: the table may have been locked, and leases are not shortened by that. A rate goes by the moment of the
    -- choice.
    v_now := coalesce(v_moment, now_us(p_now));
    IF v_more THEN
        v_due := v_now;
    ELSE
        IF v_pauses THEN
            SELECT min(p.paused_until) INTO v_pause
            FROM topics p JOIN unnest(p_topics, p_tasks) AS l(topic, task) ON l.topic = p.topic,
                LATERAL (
                    (SELECT FROM jobs j WHERE j.state = 1 AND j.topic = l.topic AND j.task = l.task
                     ORDER BY (-j.priority), j.number LIMIT 1)
                    UNION ALL
                    (SELECT FROM tasks_of_topic(l.topic) WHERE l.task IS NULL LIMIT 1)
                ) AS first
            WHERE p.paused_until > v_now AND p.paused_until < 253402300799999999;
        END IF;
        v_due := least(v_waiting, v_leased, v_pause, v_room);
    END IF;
    -- A claim of one job that counts as its start makes no batch, which has no place for counts_if_lost.
    v_batching := v_batchable
        AND cardinality(v_tids) >= greatest(p_min_batch, CASE WHEN p_reports_starts THEN 1 ELSE 2 END);
    IF v_batching THEN
        v_batches := ARRAY(SELECT nextval('fences') FROM generate_series(1, (cardinality(v_tids) + 62) / 63));
        RETURN QUERY
            WITH gone AS (
                DELETE FROM jobs j USING unnest(v_tids) WITH ORDINALITY AS t(tid, position)
                WHERE j.ctid = t.tid
                RETURNING (t.position - 1) / 63 AS batch, (t.position - 1) % 63 + 1 AS place, j.id, j.topic, j.task,
                    j.tenant, j.priority, j.attempt, j.max_attempts, j.timeout_us, j.retry, j.payload, j.raw, j.format,
                    j.number, j.created_at, j.run_at, j.correlation_id, j.user_id, j.service_id, j.headers, j.suspect,
                    j.timeouts, j.has_separate_body, j.reserves, j AS job
            ), batched AS (
                INSERT INTO leased_batches (batch, leased_until, claimed_at, store_handle, held_mask, tenant, worker,
                ids, last_id, jobs)
                SELECT v_batches[t.batch + 1], v_now + p_lease_us, v_now, p_store_handle,
                       ~(-1::bigint << cardinality(t.ids)) << 1, v_tenants[1], p_worker, t.ids,
                       (SELECT i.id FROM unnest(t.ids) AS i(id) ORDER BY i.id DESC LIMIT 1), t.jobs
                FROM (
                    SELECT g.batch, array_agg(g.id) AS ids, array_agg(g.job) AS jobs FROM gone g GROUP BY g.batch
                ) AS t
            )
            SELECT g.id, v_batches[g.batch + 1] * 64 + g.place, g.topic, g.task, g.tenant, g.priority, g.attempt + 1,
                   g.max_attempts, g.timeout_us, g.retry, p_lease_us,
                   CASE WHEN g.has_separate_body THEN (
                       SELECT b.payload FROM bodies b WHERE b.id = g.id AND b.tenant = g.tenant
                   ) ELSE g.payload END,
                   CASE WHEN g.has_separate_body THEN (
                       SELECT b.raw FROM bodies b WHERE b.id = g.id AND b.tenant = g.tenant
                   ) ELSE g.raw END,
                   g.format,
                   CASE WHEN g.reserves > 0 THEN (SELECT p.checkpoint FROM progress p WHERE p.id = g.id) END,
                   g.number, g.created_at, g.run_at, NULL::text, g.correlation_id, g.user_id, g.service_id, g.headers,
                   CASE WHEN g.suspect THEN greatest(g.timeouts, 1) ELSE 0 END
            FROM gone g;
    END IF;
    v_updated := CASE WHEN v_batching THEN l_tids ELSE v_tids || l_tids END;
    IF v_updated <> '{}' THEN
        RETURN QUERY
            -- By ctid, not by id IN (SELECT …): that may, with a legal plan, be asked again for every row and claim
            -- the whole table. The row is locked, so neither its place nor its state can change; and with no more
            -- conditions there is no index to mistake for a better way.
            UPDATE jobs j
            SET state = 2, attempt = attempt + 1, fence = nextval('fences') * 64,
                leased_until = v_now + coalesce(lease_us, p_lease_us), worker = p_worker, claimed_at = v_now,
                store_handle = p_store_handle, started_at = NULL,
                counts_if_lost = NOT p_reports_starts AND cardinality(v_tids) + coalesce(cardinality(l_tids), 0) = 1,
                reserves = reserves + 1,
                -- What runs of a limited topic has a limit key, if only an empty one: it is counted by an index of
                -- such.
                limit_key = CASE WHEN j.ctid = ANY (l_tids) THEN coalesce(j.limit_key, '') ELSE j.limit_key END
            WHERE j.ctid = ANY (v_updated)
            RETURNING j.id, j.fence, j.topic, j.task, j.tenant, j.priority, j.attempt, j.max_attempts, j.timeout_us,
                j.retry, coalesce(j.lease_us, p_lease_us),
                CASE WHEN j.has_separate_body THEN (
                    SELECT b.payload FROM bodies b WHERE b.id = j.id AND b.tenant = j.tenant
                ) ELSE j.payload END,
                CASE WHEN j.has_separate_body THEN (
                    SELECT b.raw FROM bodies b WHERE b.id = j.id AND b.tenant = j.tenant
                ) ELSE j.raw END,
                j.format,
                -- Only a job that was granted before can have left a checkpoint.
                CASE WHEN j.reserves > 1 THEN (SELECT p.checkpoint FROM progress p WHERE p.id = j.id) END,
                j.number, j.created_at, j.run_at, j.key, j.correlation_id, j.user_id, j.service_id, j.headers,
                CASE WHEN j.suspect THEN greatest(j.timeouts, 1) ELSE 0 END;
    END IF;
    IF v_tids <> '{}' THEN
        INSERT INTO counter_deltas (minute, tenant, topic, task, ready, running)
        SELECT minute_of(v_now), g.tenant, v_topics[g.lane], v_tasks[g.lane], -count(*), count(*)
        FROM unnest(v_tenants, v_lanes) AS g(tenant, lane) GROUP BY g.tenant, g.lane;
    END IF;
    IF l_tids <> '{}' THEN
        INSERT INTO counter_deltas (minute, tenant, topic, task, ready, running)
        SELECT minute_of(v_now), g.tenant, g.topic, g.task, -count(*), count(*)
        FROM unnest(l_tenants, l_topics, l_tasks) AS g(tenant, topic, task)
        GROUP BY g.tenant, g.topic, g.task;
    END IF;
    o_id := NULL; o_created_at := v_now; o_run_at := v_due; o_number := v_maintained_until; o_fence := v_cost;
    o_payload := array_to_json(v_told)::text; o_losses := v_needs_more_slots::integer;
    IF v_limited <> '{}' THEN
        o_checkpoint := array_to_json(v_limited)::text;
    END IF;
    RETURN NEXT;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off;

-- The tasks of a topic that have ready jobs, skipping from one to the next without reading the jobs between.
CREATE FUNCTION tasks_of_topic(p_topic text) RETURNS SETOF text
LANGUAGE sql AS $$
    WITH RECURSIVE found AS (
        (SELECT task FROM jobs WHERE state = 1 AND topic = p_topic ORDER BY task LIMIT 1)
        UNION ALL
        SELECT (SELECT j.task FROM jobs j WHERE j.state = 1 AND j.topic = p_topic AND j.task > f.task
                ORDER BY j.task LIMIT 1)
        FROM found f WHERE f.task IS NOT NULL
    )
    SELECT task FROM found WHERE task IS NOT NULL
$$;

-- Give back what was granted to this worker through this handle after fence p_after_fence: the reply to a claim was
-- lost, and the worker does not know of these jobs. None has started, so no attempt is counted. A job with a cancel
-- request ends here, as any other that is released (p_summary: how to say it).
CREATE FUNCTION release_lost_grants(p_now bigint, p_worker text, p_store_handle bigint, p_after_fence bigint,
    p_summary text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_number bigint;
    v_job record;
BEGIN
    PERFORM unbatch_granted(p_worker, p_store_handle, p_after_fence);
    FOR v_job IN
        SELECT id, attempt FROM jobs
        WHERE state = 2 AND store_handle = p_store_handle AND worker = p_worker AND fence > p_after_fence
            AND started_at IS NULL
            AND cancel_requested
        ORDER BY leased_until
        FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM finish(v_job.id, 5, now_us(p_now), v_job.attempt - 1, NULL, p_summary, false);
    END LOOP;
    WITH returned AS (
        UPDATE jobs
        SET state = 1, attempt = attempt - 1, leased_until = NULL, worker = NULL, claimed_at = NULL,
            counts_if_lost = false, reserves = reserves - 1
        WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM jobs
            WHERE state = 2 AND store_handle = p_store_handle AND worker = p_worker AND fence > p_after_fence
                AND started_at IS NULL
                AND NOT cancel_requested
            ORDER BY leased_until
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING tenant, topic, task
    ), deltas AS (
        INSERT INTO counter_deltas (minute, tenant, topic, task, ready, running)
        SELECT minute_of(now_us(p_now)), tenant, topic, task, count(*), -count(*)
        FROM returned GROUP BY tenant, topic, task
    )
    SELECT count(*) INTO v_number FROM returned;
    RETURN v_number;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off;

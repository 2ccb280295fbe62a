-- New jobs, many callers' in one statement. Arrays hold one element a job, or a single one that all jobs share; NULL
-- stands for an array of NULLs.
--
-- p_is_retry: an earlier try of the same jobs ended without an answer; what it wrote is not written twice. p_children,
-- p_parents, p_after_any: which of them, by position, run after which jobs, and whether however those end; see
-- add_parents. p_conditions, p_condition_values: where a job is made under a row filter, the condition that a holder
-- of its key and the jobs it runs after have to meet, see meets_condition. 'TW003', with the key, when the holder does
-- not: then nothing may be kept. One row comes back for each job: its own id, the id of the holder if its key was
-- taken, and number and times of the job that now stands for it. Without keys and p_is_retry the rows come in the
-- order of the jobs.
CREATE FUNCTION enqueue(
    p_now bigint, p_is_retry boolean, p_keyed boolean, p_large boolean,
    p_ids uuid[], p_topics text[], p_tasks text[], p_tenants text[], p_priorities bigint[],
    p_run_ats bigint[], p_delays_us bigint[], p_expires_ats bigint[], p_expires_in_us bigint[],
    p_max_attempts integer[], p_timeouts_us bigint[], p_leases_us bigint[], p_retentions_us bigint[],
    p_retentions_failed_us bigint[], p_retries text[], p_keys text[], p_key_untils smallint[],
    p_replaces boolean[], p_correlation_ids text[], p_user_ids text[], p_service_ids text[], p_limit_keys text[],
    p_headers text[],
    p_formats smallint[], p_payloads text[], p_raws bytea[], p_separate_bodies boolean[],
    p_children integer[], p_parents uuid[], p_after_any boolean[], p_conditions text[], p_condition_values text[]
) RETURNS TABLE (
    o_id uuid, o_holder uuid, o_number bigint, o_created_at bigint, o_run_at bigint, o_replaced boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_us(p_now);
    v_write boolean[];          -- which jobs to write in this round; NULL = all
    v_left integer[] := '{}';   -- positions of jobs whose key was taken when they were to be written
    v_locked uuid[] := '{}';    -- holders of keys that may be replaced
    v_overruled boolean[];      -- which of v_left are replaced by a later one of this call in turn
    v_found record;
    v_orphan job_keys;          -- a key without a job
    v_run_at bigint;
    v_replaced boolean;
    v_written boolean[];        -- which were, where some run after others
    v_hidden uuid;              -- a parent that does not meet the condition
BEGIN
    IF current_setting('tidewheel.caller_lock_timeout', true) <> '' THEN -- called by enqueue_json
        PERFORM set_config('lock_timeout', current_setting('tidewheel.caller_lock_timeout'), true); -- until its end
    END IF;
    IF cardinality(p_ids) > 1 THEN
        p_topics := repeat_single_value(p_topics, cardinality(p_ids));
        p_tasks := repeat_single_value(p_tasks, cardinality(p_ids));
        p_tenants := repeat_single_value(p_tenants, cardinality(p_ids));
        p_priorities := repeat_single_value(p_priorities, cardinality(p_ids));
        p_run_ats := repeat_single_value(p_run_ats, cardinality(p_ids));
        p_delays_us := repeat_single_value(p_delays_us, cardinality(p_ids));
        p_expires_ats := repeat_single_value(p_expires_ats, cardinality(p_ids));
        p_expires_in_us := repeat_single_value(p_expires_in_us, cardinality(p_ids));
        p_max_attempts := repeat_single_value(p_max_attempts, cardinality(p_ids));
        p_timeouts_us := repeat_single_value(p_timeouts_us, cardinality(p_ids));
        p_leases_us := repeat_single_value(p_leases_us, cardinality(p_ids));
        p_retentions_us := repeat_single_value(p_retentions_us, cardinality(p_ids));
        p_retentions_failed_us := repeat_single_value(p_retentions_failed_us, cardinality(p_ids));
        p_retries := repeat_single_value(p_retries, cardinality(p_ids));
        p_keys := repeat_single_value(p_keys, cardinality(p_ids));
        p_key_untils := repeat_single_value(p_key_untils, cardinality(p_ids));
        p_replaces := repeat_single_value(p_replaces, cardinality(p_ids));
        p_correlation_ids := repeat_single_value(p_correlation_ids, cardinality(p_ids));
        p_user_ids := repeat_single_value(p_user_ids, cardinality(p_ids));
        p_service_ids := repeat_single_value(p_service_ids, cardinality(p_ids));
        p_limit_keys := repeat_single_value(p_limit_keys, cardinality(p_ids));
        p_headers := repeat_single_value(p_headers, cardinality(p_ids));
        p_formats := repeat_single_value(p_formats, cardinality(p_ids));
        p_raws := repeat_single_value(p_raws, cardinality(p_ids));
        p_separate_bodies := repeat_single_value(p_separate_bodies, cardinality(p_ids));
        p_conditions := repeat_single_value(p_conditions, cardinality(p_ids));
        p_condition_values := repeat_single_value(p_condition_values, cardinality(p_ids));
    END IF;
    IF row_security_active('topics') THEN
        -- A role sees a topic once it has jobs in it, and what follows has to see it before the first one is there.
        INSERT INTO counter_deltas (minute, tenant, topic, task)
        SELECT DISTINCT minute_of(v_now), u.tenant, u.topic, ''
        FROM unnest(repeat_single_value(p_topics, cardinality(p_ids)),
            repeat_single_value(p_tenants, cardinality(p_ids))) AS u(topic, tenant)
        WHERE NOT EXISTS (SELECT FROM job_counts c WHERE c.topic = u.topic);
    END IF;
    IF EXISTS (SELECT FROM topics t WHERE t.fair AND t.topic = ANY (p_topics)) THEN
        -- Jobs of these are found by tenant, which takes a limit key.
        p_limit_keys := ARRAY(
            SELECT coalesce(p_limit_keys[u.position], CASE WHEN EXISTS (
                SELECT FROM topics t WHERE t.fair AND t.topic = u.topic
            ) THEN '' END)
            FROM unnest(repeat_single_value(p_topics, cardinality(p_ids))) WITH ORDINALITY AS u(topic, position)
                ORDER BY u.position
        );
    END IF;
    IF p_is_retry THEN
        v_write := ARRAY(SELECT NOT EXISTS (SELECT FROM all_jobs a WHERE a.id = ANY (ARRAY[n.id])
                                              AND (a.batch_ids IS NULL OR a.batch_ids @> ARRAY[n.id]))
                         FROM unnest(p_ids) WITH ORDINALITY AS n(id, position) ORDER BY n.position);
        RETURN QUERY
            SELECT a.id, NULL::uuid, a.number, a.created_at, a.run_at, false
            FROM unnest(p_ids) AS n(id)
                JOIN all_jobs a ON a.id = ANY (ARRAY[n.id]) AND (a.batch_ids IS NULL OR a.batch_ids @> ARRAY[n.id]);
    ELSIF EXISTS (
        SELECT FROM unnest(p_ids) AS n(id), LATERAL (SELECT FROM finished_jobs f WHERE f.id = n.id LIMIT 1) AS taken
    ) THEN
        RAISE unique_violation USING MESSAGE = 'a job with this id has finished';
    ELSIF any_batched(p_ids) THEN
        RAISE unique_violation USING MESSAGE = 'a job with this id is running';
    END IF;
    LOOP
        IF p_keyed THEN
            -- In the order of the keys: two batches that took the same ones in different orders would deadlock.
            INSERT INTO job_keys (tenant, scope, key, id)
            SELECT DISTINCT ON (n.tenant, n.scope, n.key) n.tenant, n.scope, n.key, n.id
            FROM (
                SELECT u.tenant, CASE u.task WHEN '' THEN u.topic ELSE u.task END AS scope, u.key, u.id, u.position
                FROM unnest(p_ids, p_topics, p_tasks, p_tenants, p_keys) WITH ORDINALITY
                    AS u(id, topic, task, tenant, key, position)
                WHERE u.key IS NOT NULL AND (v_write IS NULL OR v_write[u.position])
            ) AS n
            ORDER BY n.tenant, n.scope, n.key, n.position
            ON CONFLICT DO NOTHING;
            v_left := ARRAY(
                SELECT u.position
                FROM unnest(p_ids, p_topics, p_tasks, p_tenants, p_keys) WITH ORDINALITY
                    AS u(id, topic, task, tenant, key, position)
                WHERE u.key IS NOT NULL AND (v_write IS NULL OR v_write[u.position]) AND NOT EXISTS (
                    SELECT FROM job_keys k
                    WHERE k.tenant = ANY (ARRAY[u.tenant]) AND k.key = ANY (ARRAY[u.key]) AND k.id = u.id
                        AND k.scope = ANY (ARRAY[CASE u.task WHEN '' THEN u.topic ELSE u.task END])
                )
                ORDER BY u.position
            );
            IF v_left <> '{}' AND v_write IS NULL THEN
                v_write := array_fill(true, ARRAY[cardinality(p_ids)]);
            END IF;
            FOR i IN 1..cardinality(v_left) LOOP
                v_write[v_left[i]] := false;
            END LOOP;
        END IF;

        RETURN QUERY
            WITH written AS (
                INSERT INTO jobs AS j (
                    id, state, topic, task, tenant, priority, run_at, created_at, expires_at, max_attempts,
                    timeout_us, lease_us, retention_us, retention_failed_us, retry, key, key_until,
                    correlation_id, user_id, service_id, limit_key, headers, format, has_separate_body, payload, raw
                )
                SELECT u.id, (d.run_at <= v_now)::integer, u.topic, u.task, u.tenant, u.priority, d.run_at, v_now,
                       coalesce(u.expires_at, v_now + u.expires_in_us), u.max_attempts,
                       u.timeout_us, u.lease_us, u.retention_us, u.retention_failed_us, u.retry, u.key, u.key_until,
                       u.correlation_id, u.user_id, u.service_id, u.limit_key, u.headers, u.format, u.apart,
                       CASE WHEN NOT u.apart THEN u.payload END, CASE WHEN NOT u.apart THEN u.raw END
                FROM unnest(p_ids, p_topics, p_tasks, p_tenants, p_priorities, p_run_ats, p_delays_us,
                            p_expires_ats, p_expires_in_us, p_max_attempts, p_timeouts_us, p_leases_us,
                            p_retentions_us, p_retentions_failed_us, p_retries, p_keys, p_key_untils,
                            p_correlation_ids, p_user_ids, p_service_ids, p_limit_keys, p_headers, p_formats,
                            p_payloads,
                            p_raws, p_separate_bodies) WITH ORDINALITY
                        AS u(id, topic, task, tenant, priority, run_at, delay_us, expires_at, expires_in_us,
                             max_attempts, timeout_us, lease_us, retention_us, retention_failed_us, retry, key,
                             key_until, correlation_id, user_id, service_id, limit_key, headers, format, payload, raw,
                             apart,
                             position),
                    -- A past run_at means now: no job can wait before it exists.
                    LATERAL (SELECT greatest(coalesce(u.run_at, v_now + u.delay_us), v_now) AS run_at) AS d
                WHERE v_write IS NULL OR v_write[u.position]
                RETURNING j.id, j.number, j.created_at, j.run_at, j.state, j.tenant, j.topic, j.task
            ), deltas AS (
                INSERT INTO counter_deltas (minute, tenant, topic, task, waiting, ready, enqueued_events)
                SELECT minute_of(v_now), w.tenant, w.topic, w.task, count(*) FILTER (WHERE w.state = 0),
                       count(*) FILTER (WHERE w.state = 1), count(*)
                FROM written w GROUP BY w.tenant, w.topic, w.task
            )
            SELECT w.id, NULL::uuid, w.number, w.created_at, w.run_at, false FROM written w;
        IF p_large THEN
            INSERT INTO bodies (id, tenant, payload, raw)
            SELECT u.id, u.tenant, u.payload, u.raw
            FROM unnest(p_ids, p_tenants, p_separate_bodies, p_payloads, p_raws) WITH ORDINALITY
                AS u(id, tenant, apart, payload, raw, position)
            WHERE u.apart AND (v_write IS NULL OR v_write[u.position]);
        END IF;
        IF p_children IS NOT NULL THEN
            v_written := ARRAY(
                SELECT coalesce(v_written[position], false) OR coalesce(v_write[position], v_write IS NULL)
                FROM generate_series(1, cardinality(p_ids)) AS position
            );
        END IF;
        EXIT WHEN v_left = '{}';

        -- The rest are duplicates, unless the holder has let go of the key by now: then they get another round.
        v_write := array_fill(false, ARRAY[cardinality(p_ids)]);
        IF true = ANY (p_replaces) THEN
            -- Holders are locked in the order of their ids, as everybody does. One that is not found was finished.
            v_locked := ARRAY(
                SELECT j.id FROM jobs j
                WHERE j.id = ANY (ARRAY(
                    SELECT k.id FROM unnest(v_left) AS l(position)
                    JOIN job_keys k
                        ON k.tenant = ANY (ARRAY[p_tenants[l.position]]) AND k.key = ANY (ARRAY[p_keys[l.position]])
                        AND k.scope = ANY (ARRAY[
                            CASE p_tasks[l.position] WHEN '' THEN p_topics[l.position] ELSE p_tasks[l.position] END
                        ])
                    WHERE p_replaces[l.position]
                ))
                    AND j.state < 2 -- a running one is not replaced, and its worker must be able to extend its lease
                ORDER BY j.id FOR NO KEY UPDATE -- not in the way of who brings back a job that runs after one of them
            );
            -- Of a thousand calls that debounce the same key at once, only what the last one says has to be written.
            v_overruled := ARRAY(
                SELECT coalesce(lead(p_replaces[l.position]) OVER (
                    PARTITION BY p_tenants[l.position], p_keys[l.position],
                        CASE p_tasks[l.position] WHEN '' THEN p_topics[l.position] ELSE p_tasks[l.position] END
                    ORDER BY l.position
                ), false)
                FROM unnest(v_left) AS l(position) ORDER BY l.position
            );
        END IF;
        FOR i IN 1..cardinality(v_left) LOOP
            SELECT u.*, k.id AS holder INTO v_found
            FROM (SELECT v_left[i] AS position, p_ids[v_left[i]] AS id) AS u
            LEFT JOIN job_keys k ON k.tenant = p_tenants[v_left[i]] AND k.key = p_keys[v_left[i]]
                AND k.scope = CASE p_tasks[v_left[i]] WHEN '' THEN p_topics[v_left[i]] ELSE p_tasks[v_left[i]] END;
            -- A holder that may be replaced is locked by now, so it is written as it was seen.
            IF p_conditions IS NOT NULL
                AND NOT meets_condition(v_found.holder, p_conditions[v_found.position],
                    p_condition_values[v_found.position], v_now)
                AND EXISTS (SELECT FROM single_row_jobs a WHERE a.id = v_found.holder)
            THEN
                RAISE SQLSTATE 'TW003' USING MESSAGE = p_keys[v_found.position];
            END IF;
            IF p_replaces[v_found.position] AND v_found.holder = ANY (v_locked) THEN
                v_run_at := greatest(
                    coalesce(p_run_ats[v_found.position], v_now + p_delays_us[v_found.position]), v_now
                );
                IF v_overruled[i] THEN
                    v_replaced := EXISTS (
                        SELECT FROM jobs j
                        WHERE j.id = v_found.holder AND j.state < 2 AND j.attempt = 0 AND NOT has_saved_progress(j.id)
                    );
                ELSE
                    v_replaced := replace_job(
                        v_found.holder, v_now, v_run_at, p_priorities[v_found.position],
                        coalesce(p_expires_ats[v_found.position], v_now + p_expires_in_us[v_found.position]),
                        p_formats[v_found.position], p_payloads[v_found.position], p_raws[v_found.position],
                        p_separate_bodies[v_found.position]
                    );
                END IF;
                IF v_replaced THEN
                    RETURN QUERY SELECT v_found.id, j.id, j.number, j.created_at, v_run_at, true
                                 FROM jobs j WHERE j.id = v_found.holder;
                    CONTINUE;
                END IF;
            END IF;
            RETURN QUERY SELECT v_found.id, a.id, a.number, a.created_at, a.run_at, false
                         FROM single_row_jobs a WHERE a.id = v_found.holder; -- a job with a key is never in a batch
            IF NOT FOUND THEN
                v_write[v_found.position] := true;
                -- The key of a job that was deleted by hand: nothing else would ever release it. Looked for first,
                -- because a role that may not delete keys would be refused where there is nothing to delete, too.
                SELECT k.* INTO v_orphan FROM job_keys k
                WHERE k.id = v_found.holder AND NOT EXISTS (SELECT FROM single_row_jobs a WHERE a.id = k.id)
                    AND k.tenant = p_tenants[v_found.position] AND k.key = p_keys[v_found.position] AND k.scope
                        = CASE p_tasks[v_found.position] WHEN '' THEN p_topics[v_found.position]
                               ELSE p_tasks[v_found.position] END;
                IF FOUND THEN
                    DELETE FROM job_keys k
                    WHERE (k.tenant, k.scope, k.key, k.id)
                        = (v_orphan.tenant, v_orphan.scope, v_orphan.key, v_orphan.id);
                END IF;
            END IF;
        END LOOP;
        EXIT WHEN true <> ALL (v_write);
    END LOOP;
    IF p_children IS NOT NULL AND p_conditions IS NOT NULL THEN
        SELECT u.parent INTO v_hidden
        FROM unnest(p_children, p_parents) WITH ORDINALITY AS u(child, parent, position)
        WHERE v_written[u.child] AND NOT meets_condition(u.parent, p_conditions[u.child], p_condition_values[u.child],
            v_now)
        ORDER BY u.position LIMIT 1;
        IF FOUND THEN
            RAISE SQLSTATE 'TW001' USING MESSAGE = v_hidden::text; -- as add_parents says it of one that does not exist
        END IF;
    END IF;
    IF p_children IS NOT NULL THEN
        -- The parents of a duplicate do not matter, nor does what an earlier try has written.
        PERFORM add_parents(v_now, e.children, e.parents, e.after_any)
        FROM (
            SELECT array_agg(p_ids[u.child] ORDER BY u.position) AS children,
                   array_agg(u.parent ORDER BY u.position) AS parents,
                   array_agg(u.after_any ORDER BY u.position) AS after_any
            FROM unnest(p_children, p_parents, p_after_any) WITH ORDINALITY AS u(child, parent, after_any, position)
            WHERE v_written[u.child]
        ) AS e
        WHERE e.children IS NOT NULL;
    END IF;
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '10s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- Whether a job meets a condition that stores/condition_sql.py wrote: $2 has its values, $3 is the time. NULL is met
-- by all.
CREATE FUNCTION meets_condition(p_id uuid, p_condition text, p_values text, p_now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_met boolean := true;
BEGIN
    IF p_condition IS NOT NULL THEN
        EXECUTE 'SELECT EXISTS (SELECT FROM all_jobs j WHERE j.id = ANY (ARRAY[$1])'
            ' AND (j.batch_ids IS NULL OR j.batch_ids @> ARRAY[$1]) AND ' || p_condition || ')'
        INTO v_met USING p_id, p_values::json, p_now;
    END IF;
    RETURN v_met;
END
$$
SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off;

-- enqueue in a transaction of the caller's, over any connection: one text in and one out, which no driver, codec or row
-- factory can misunderstand. Both are ASCII, whatever is in the jobs, because a connection may have any
-- client_encoding: what comes in is escaped, and holders of keys go out in base64.
--
-- It waits for locks as long as the caller's lock_timeout says, not as long as other functions of ours do.
--
-- Waiting workers are notified with the commit, by one such transaction at a time: NOTIFY holds a lock of the whole
-- database until the commit is on the disk, and all transactions that commit jobs would wait for each other. A
-- transaction that finds another one about to notify does not notify, and returns its own id and told = false: its
-- process then notifies after the commit.
CREATE FUNCTION enqueue_json(p_jobs_json text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    g record;
    v_rows json;
    v_holders text;
    v_unnamed boolean;
    v_told boolean := false;
    v_missing text; -- what is refused, as it is answered
BEGIN
    PERFORM set_config('tidewheel.caller_lock_timeout', current_setting('lock_timeout'), true);
    SELECT * INTO STRICT g FROM json_to_record(p_jobs_json::json) AS given(
        now bigint, is_retry boolean, keyed boolean, large boolean,
        ids uuid[], topics text[], tasks text[], tenants text[], priorities bigint[],
        run_ats bigint[], delays_us bigint[], expires_ats bigint[], expires_in_us bigint[],
        max_attempts integer[], timeouts_us bigint[], leases_us bigint[], retentions_us bigint[],
        retentions_failed_us bigint[], retries text[], keys text[], key_untils smallint[],
        replaces boolean[], correlation_ids text[], user_ids text[], service_ids text[], limit_keys text[],
        headers text[],
        formats smallint[], payloads text[], raws bytea[], separate_bodies boolean[],
        children integer[], parents uuid[], after_any boolean[], conditions text[], condition_values text[]
    );
    -- Under row-level security a transaction has to say whose rows it means. One that does not gets the jobs' tenant.
    v_unnamed := coalesce(current_setting('app.tenant_id', true), '') = '' AND cardinality(g.tenants) = 1;
    IF v_unnamed THEN
        PERFORM set_config('app.tenant_id', g.tenants[1], true);
    END IF;
    IF g.children IS NULL AND g.conditions IS NULL THEN
        SELECT json_agg(json_build_array(e.o_id, e.o_holder, e.o_number, e.o_created_at, e.o_run_at, e.o_replaced))
        INTO v_rows
        FROM enqueue(
            g.now, g.is_retry, g.keyed, g.large, g.ids, g.topics, g.tasks, g.tenants, g.priorities, g.run_ats,
            g.delays_us,
            g.expires_ats, g.expires_in_us, g.max_attempts, g.timeouts_us, g.leases_us, g.retentions_us,
            g.retentions_failed_us, g.retries, g.keys, g.key_untils, g.replaces, g.correlation_ids, g.user_ids,
            g.service_ids, g.limit_keys, g.headers, g.formats, g.payloads, g.raws, g.separate_bodies, g.children,
            g.parents,
            g.after_any, g.conditions, g.condition_values
        ) AS e;
    ELSE
        BEGIN -- what is refused leaves the caller's transaction as it was
            SELECT json_agg(json_build_array(e.o_id, e.o_holder, e.o_number, e.o_created_at, e.o_run_at, e.o_replaced))
            INTO v_rows
            FROM enqueue(
                g.now, g.is_retry, g.keyed, g.large, g.ids, g.topics, g.tasks, g.tenants, g.priorities, g.run_ats,
                g.delays_us,
                g.expires_ats, g.expires_in_us, g.max_attempts, g.timeouts_us, g.leases_us, g.retentions_us,
                g.retentions_failed_us, g.retries, g.keys, g.key_untils, g.replaces, g.correlation_ids, g.user_ids,
                g.service_ids, g.limit_keys, g.headers, g.formats, g.payloads, g.raws, g.separate_bodies, g.children,
                g.parents,
                g.after_any, g.conditions, g.condition_values
            ) AS e;
        EXCEPTION
            WHEN SQLSTATE 'TW001' THEN
                v_missing := json_build_object('missing', SQLERRM)::text;
            WHEN SQLSTATE 'TW003' THEN -- a key may have any characters
                v_missing := json_build_object(
                    'hidden', encode(convert_to(to_json(SQLERRM)::text, 'UTF8'), 'base64')
                )::text;
        END;
    END IF;
    PERFORM set_config('tidewheel.caller_lock_timeout', '', true);
    IF g.keyed AND v_missing IS NULL THEN
        v_holders := encode(convert_to(jobs_as_json(
            ARRAY(SELECT (r ->> 1)::uuid FROM json_array_elements(v_rows) AS r WHERE r ->> 1 IS NOT NULL), g.tenants
        )::text, 'UTF8'), 'base64');
    END IF;
    IF v_unnamed THEN
        PERFORM set_config('app.tenant_id', '', true);
    END IF;
    IF v_missing IS NOT NULL THEN
        RETURN v_missing;
    END IF;
    IF EXISTS (SELECT FROM json_array_elements(v_rows) AS r WHERE r ->> 1 IS NULL OR (r ->> 5)::boolean) THEN
        v_told := pg_try_advisory_xact_lock(hashtextextended('tidewheel.tell.' || current_schema(), 0));
        IF v_told THEN
            PERFORM pg_notify(current_schema(), ready_hint(g.topics));
        END IF;
    ELSE
        v_told := true; -- there is nothing to tell
    END IF;
    RETURN json_build_object(
        'transaction', pg_current_xact_id()::text, 'told', v_told, 'rows', v_rows, 'holders', v_holders
    )::text;
END
$$
SET search_path FROM CURRENT;

-- Jobs of these tenants, or of all, in the columns of job_queries.sql; bytes as hex.
CREATE FUNCTION jobs_as_json(p_ids uuid[], p_tenants text[]) RETURNS json
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT json_agg(json_build_array(
            j.id, j.number, j.tenant, j.topic, j.task, j.state, j.priority, j.attempt, j.max_attempts, j.created_at,
            j.run_at, j.claimed_at, j.started_at, j.finished_at, j.leased_until, j.fence, j.worker, j.timeout_us, j.key,
            j.correlation_id, j.user_id, j.service_id, j.blocked, j.cancel_requested, j.error_summary, p.percent,
            p.message, p.stage, p.updated_at, j.limit_key,
            j.format, coalesce(b.payload, j.payload), encode(coalesce(b.raw, j.raw), 'hex'), j.result, p.checkpoint,
            j.retry, j.headers, j.lease_us, j.reserves, coalesce(j.timeouts, 0), coalesce(j.releases, 0),
            coalesce(j.buries, 0),
            coalesce(j.kicks, 0), coalesce(j.touches, 0),
            coalesce((SELECT json_agg(json_build_array(a.attempt, a.worker, a.started_at, a.ended_at, a.error)
                                      ORDER BY a.ordinal) FROM attempts a WHERE a.id = j.id), '[]'),
            coalesce((SELECT json_agg(json_build_array(s.name, s.output, s.attempt, s.worker,
                                                        s.started_at, s.finished_at)
                                      ORDER BY s.ordinal) FROM steps s WHERE s.id = j.id), '[]'),
            coalesce((SELECT json_agg(json_build_array(d.o_parent, d.o_state, d.o_unresolved, d.o_after_any))
                      FROM parents_of(j.id, j.tenant, j.state) AS d), '[]')
        ))
        FROM all_jobs j
        LEFT JOIN bodies b ON b.id = j.id AND b.tenant = j.tenant AND j.has_separate_body
        LEFT JOIN progress p ON p.id = j.id
        WHERE j.id = ANY (p_ids) AND (j.batch_ids IS NULL OR j.batch_ids && p_ids)
            AND (p_tenants IS NULL OR j.tenant = ANY (p_tenants))
    );
END
$$
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

-- One job, on a connection of the caller's: its id and tenant as JSON. In base64, like holders of keys.
CREATE FUNCTION get_json(p_query_json text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_tenant text := p_query_json::json ->> 'tenant';
    v_unnamed boolean := coalesce(current_setting('app.tenant_id', true), '') = '' AND v_tenant IS NOT NULL;
    v_found json;
BEGIN
    IF v_unnamed THEN
        PERFORM set_config('app.tenant_id', v_tenant, true);
    END IF;
    v_found := jobs_as_json(
        ARRAY[(p_query_json::json ->> 'id')::uuid], CASE WHEN v_tenant IS NOT NULL THEN ARRAY[v_tenant] END
    ) -> 0;
    IF v_unnamed THEN
        PERFORM set_config('app.tenant_id', '', true);
    END IF;
    RETURN encode(convert_to(v_found::text, 'UTF8'), 'base64');
END
$$
SET search_path FROM CURRENT;

-- Topics with jobs, and how many of those are pending or running. From counters, never from rows.
CREATE FUNCTION jobs_by_topic() RETURNS TABLE (o_topic text, o_active numeric)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
        SELECT c.topic, sum(c.active) FROM (
            SELECT topic, waiting + ready + running AS active,
                   waiting + ready + running + completed + failed + cancelled AS n
            FROM job_counts
            UNION ALL
            SELECT topic, waiting + ready + running, waiting + ready + running + completed + failed + cancelled
            FROM counter_deltas
        ) AS c
        GROUP BY c.topic HAVING sum(c.n) > 0;
END
$$
SET search_path FROM CURRENT SET jit = off;

-- What limits go by, on a connection of the caller's: jobs by topic, and which of these keys are taken. The tenant of
-- the jobs and the keys as JSON. Under row-level security a transaction that names no tenant sees no counters, and no
-- limit would hold it.
CREATE FUNCTION store_limits_json(p_query_json text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_tenant text := p_query_json::json ->> 'tenant';
    v_unnamed boolean := coalesce(current_setting('app.tenant_id', true), '') = '' AND v_tenant IS NOT NULL;
    v_answer json;
BEGIN
    IF v_unnamed THEN
        PERFORM set_config('app.tenant_id', v_tenant, true);
    END IF;
    v_answer := json_build_object(
        'topics', (SELECT json_agg(json_build_array(t.o_topic, t.o_active)) FROM jobs_by_topic() AS t),
        'taken', (
            SELECT json_agg(json_build_array(k.tenant, k.scope, k.key))
            FROM json_to_recordset(p_query_json::json -> 'keys') AS n(tenant text, scope text, key text)
            JOIN job_keys k ON k.tenant = n.tenant AND k.scope = n.scope AND k.key = n.key
        )
    );
    IF v_unnamed THEN
        PERFORM set_config('app.tenant_id', '', true);
    END IF;
    -- Keys may have any characters, and the connection any client_encoding.
    RETURN encode(convert_to(v_answer::text, 'UTF8'), 'base64');
END
$$
SET search_path FROM CURRENT;

-- The notification to waiting workers, as wakeups.py reads it: there are jobs of these topics. The same for the same
-- topics, because the same notification is sent once in a transaction. Under row-level security one tenant may not
-- learn of another's topics.
CREATE FUNCTION ready_hint(p_topics text[]) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_hint text;
BEGIN
    IF NOT (SELECT c.relrowsecurity FROM pg_class c WHERE c.oid = 'jobs'::regclass) THEN
        SELECT json_build_array('', json_object_agg(t.topic, 0 ORDER BY t.topic), false)::text INTO v_hint
        FROM (SELECT DISTINCT u.topic FROM unnest(p_topics) AS u(topic)) AS t;
    END IF;
    RETURN CASE WHEN octet_length(v_hint) < 4000 THEN v_hint ELSE '["", null, false]' END;
END
$$
SET search_path FROM CURRENT;

-- Whether a run saved a checkpoint or steps, which belong to the payload that the job has now.
CREATE FUNCTION has_saved_progress(p_id uuid) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM progress p WHERE p.id = p_id AND p.checkpoint IS NOT NULL)
        OR EXISTS (SELECT FROM steps s WHERE s.id = p_id);
END
$$;

-- Debounce: a job that has not started takes over what a newer one says. False when it has been started. Its row is
-- locked by the caller.
CREATE FUNCTION replace_job(
    p_id uuid, p_now bigint, p_run_at bigint, p_priority bigint, p_expires_at bigint, p_format smallint,
    p_payload text, p_raw bytea, p_separate_body boolean
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_before jobs;
    v_state integer;
BEGIN
    SELECT * INTO v_before FROM jobs WHERE id = p_id AND state < 2 AND attempt = 0 AND NOT has_saved_progress(id);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    v_state := (p_run_at <= p_now AND v_before.blocked = 0)::integer;
    UPDATE jobs
    SET state = v_state, priority = p_priority, run_at = p_run_at, expires_at = p_expires_at, format = p_format,
        has_separate_body = p_separate_body, payload = CASE WHEN NOT p_separate_body THEN p_payload END,
        raw = CASE WHEN NOT p_separate_body THEN p_raw END
    WHERE id = p_id;
    IF v_before.has_separate_body THEN
        DELETE FROM bodies WHERE id = p_id;
    END IF;
    IF p_separate_body THEN
        INSERT INTO bodies (id, tenant, payload, raw) VALUES (p_id, v_before.tenant, p_payload, p_raw);
    END IF;
    IF v_state <> v_before.state THEN
        INSERT INTO counter_deltas (minute, tenant, topic, task, waiting, ready)
        VALUES (minute_of(p_now), v_before.tenant, v_before.topic, v_before.task,
                v_before.state - v_state, v_state - v_before.state);
    END IF;
    RETURN true;
END
$$;

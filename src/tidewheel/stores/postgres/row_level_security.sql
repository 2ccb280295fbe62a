-- Row-level security: roles, owners, rights and policies. Not a numbered step: it runs after the steps, whenever
-- `tidewheel migrate --rls` is called and with every step that is taken later, in the same transaction. Running it
-- again changes nothing that is as it should be. docs/decisions/0025-row-level-security.md has the reasons.

-- The three roles. None of them logs in; administrators make login roles as members of them.
DO $$
DECLARE
    v_name text;
BEGIN
    FOREACH v_name IN ARRAY ARRAY['tidewheel_owner', 'tidewheel_worker', 'tidewheel_api'] LOOP
        BEGIN
            IF to_regrole(v_name) IS NULL THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', v_name);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL; -- roles are the whole server's: another database may have made it this very moment
        END;
    END LOOP;
    -- The role that migrates must be able to change what the owner owns, and to see rows; FORCE hides them from owners,
    -- too.
    FOREACH v_name IN ARRAY ARRAY['tidewheel_owner', 'tidewheel_worker'] LOOP
        IF NOT pg_has_role(v_name, 'USAGE') THEN
            EXECUTE format('GRANT %I TO CURRENT_USER', v_name);
        END IF;
    END LOOP;
END
$$;

-- All tables, before any of them is changed. Workers go on meanwhile, and lock them in orders of their own. So after a
-- short wait all locks are given up and taken again, sooner than the server looks for a deadlock and ends a transaction
-- (after a second, unless deadlock_timeout says otherwise).
DO $$
DECLARE
    v_tables text := (
        SELECT string_agg(oid::regclass::text, ', ' ORDER BY relname) FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v')
    );
    v_patience text := current_setting('lock_timeout');
    v_until timestamptz := clock_timestamp() + interval '60 seconds';
BEGIN
    LOOP
        BEGIN
            PERFORM set_config('lock_timeout', '100ms', true);
            EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', v_tables);
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF clock_timestamp() > v_until THEN
                RAISE;
            END IF;
        END;
        PERFORM pg_sleep(0.1); -- for sessions that had to wait
    END LOOP;
    PERFORM set_config('lock_timeout', v_patience, true);
END
$$;

-- The owner owns all of it. Only what is not its own already: changing that waits for everybody who uses the table.
DO $$
DECLARE
    v_object record;
    v_statement text;
    v_owner oid := 'tidewheel_owner'::regrole;
BEGIN
    IF (SELECT nspowner <> v_owner FROM pg_namespace WHERE nspname = current_schema()) THEN
        EXECUTE format('ALTER SCHEMA %I OWNER TO tidewheel_owner', current_schema());
    END IF;
    FOR v_object IN
        SELECT oid::regclass AS name,
               CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS kind
        FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v', 'S') AND relowner <> v_owner
        ORDER BY relname
    LOOP
        EXECUTE format('ALTER %s %s OWNER TO tidewheel_owner', v_object.kind, v_object.name);
    END LOOP;
    FOR v_object IN
        SELECT oid::regprocedure AS name FROM pg_proc
        WHERE pronamespace = current_schema()::regnamespace AND proowner <> v_owner
        ORDER BY proname
    LOOP
        EXECUTE format('ALTER ROUTINE %s OWNER TO tidewheel_owner', v_object.name);
    END LOOP;
    FOREACH v_statement IN ARRAY ARRAY[
        -- What others were given before, and what everybody has by default, such as calling functions.
        'REVOKE ALL ON SCHEMA %I FROM PUBLIC, tidewheel_worker, tidewheel_api',
        'REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM PUBLIC, tidewheel_worker, tidewheel_api',
        'REVOKE ALL ON ALL SEQUENCES IN SCHEMA %I FROM PUBLIC, tidewheel_worker, tidewheel_api',
        'REVOKE ALL ON ALL ROUTINES IN SCHEMA %I FROM PUBLIC, tidewheel_worker, tidewheel_api',
        'GRANT USAGE ON SCHEMA %I TO tidewheel_worker, tidewheel_api',
        -- Workers and operators: everything but changing tables.
        'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO tidewheel_worker',
        'GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA %I TO tidewheel_worker',
        'GRANT EXECUTE ON ALL ROUTINES IN SCHEMA %I TO tidewheel_worker'
    ] LOOP
        EXECUTE format(v_statement, current_schema());
    END LOOP;
END
$$;

-- Callers. Every table with a tenant in it: its rows can be read, and go with the jobs they belong to.
DO $$
DECLARE
    v_table record;
BEGIN
    FOR v_table IN
        SELECT c.oid::regclass AS name, c.relkind = 'v' AS is_view
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v')
        ORDER BY c.relname
    LOOP
        EXECUTE format('GRANT SELECT %s ON %s TO tidewheel_api',
                       CASE WHEN NOT v_table.is_view THEN ', DELETE' END, v_table.name);
    END LOOP;
END
$$;
REVOKE DELETE ON counter_deltas, job_counts FROM tidewheel_api; -- only roles that see all tenants roll counters up
GRANT INSERT ON jobs, finished_jobs, bodies, job_keys, dependencies, ended_parents TO tidewheel_api;
-- on_duplicate="replace", kicks, and requests to cancel. No lease, fence or attempt can be written.
GRANT UPDATE (state, priority, run_at, expires_at, format, has_separate_body, payload, raw, cancel_requested, kicks,
              has_dependents, blocked)
    ON jobs TO tidewheel_api;
-- To lock a row one must be allowed to change some column of it; this one only says who ran the job.
GRANT UPDATE (worker, has_dependents, prune_at) ON finished_jobs TO tidewheel_api; -- the others: jobs that run after it
GRANT UPDATE (unresolved) ON dependencies TO tidewheel_api;
GRANT UPDATE (state) ON ended_parents TO tidewheel_api;
GRANT UPDATE (percent, message, stage, updated_at) ON progress TO tidewheel_api; -- requeue: the checkpoint stays
GRANT UPDATE (held_mask) ON leased_batches TO tidewheel_api; -- a job that is to be cancelled leaves its batch
-- Counts and events, no durations: those are added up for everybody, and must be true.
GRANT INSERT (minute, tenant, topic, task, waiting, ready, running, completed, failed, cancelled, enqueued_events,
              cancelled_events)
    ON counter_deltas TO tidewheel_api;
GRANT INSERT ON retention_queue TO tidewheel_api;
-- Nothing on documents: they hold keys, users and secrets.
GRANT SELECT (topic, paused_until, fair) ON topics TO tidewheel_api; -- not the shares of other tenants
GRANT SELECT ON minute_metrics, lane_minute_metrics, schema_versions TO tidewheel_api;
GRANT USAGE ON SEQUENCE numbers TO tidewheel_api;
-- What the verbs of callers call; not claim, settle, rescue, prune and the like. Functions run with the rights of their
-- caller, so this is the second fence, not the first.
DO $$
DECLARE
    v_function regprocedure;
BEGIN
    FOR v_function IN
        SELECT oid FROM pg_proc
        WHERE pronamespace = current_schema()::regnamespace AND proname IN (
            'now_us', 'minute_of', 'repeat_single_value', 'enqueue', 'enqueue_json', 'get_json', 'store_limits_json',
            'jobs_by_topic',
            'jobs_as_json', 'ready_hint', 'replace_job', 'has_saved_progress', 'meets_condition', 'any_batched',
            'requeue', 'cancel', 'take_back', 'delete_jobs',
            'delete_job_data',
            'state_of', 'count_transitions', 'finish', 'lock_ended_parents', 'unbatch', 'remove_from_batches', 'lanes',
            'stats', 'oldest_never_delayed',
            'kick_topic', 'kick_jobs', 'first_job_of_topic', 'tasks_of_topic', 'topic_depths', 'add_parents',
            'release_dependents', 'release_result', 'parent_failed_summary',
            'unbatch_jobs', 'clear_dependents_flag', 'delete_dependencies', 'restore_parents', 'parents_of'
        )
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO tidewheel_api', v_function);
    END LOOP;
END
$$;

-- Policies. Tables whose rows belong to no tenant show callers nothing, unless something below says otherwise.
DO $$
DECLARE
    v_table record;
    v_policy record;
BEGIN
    FOR v_table IN
        SELECT c.oid, c.oid::regclass AS name, c.relrowsecurity, c.relforcerowsecurity, EXISTS (
            SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped
        ) AS of_tenants
        FROM pg_class c
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
        ORDER BY c.relname
    LOOP
        IF NOT v_table.relrowsecurity THEN
            EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', v_table.name);
        END IF;
        IF NOT v_table.relforcerowsecurity THEN
            EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', v_table.name);
        END IF;
        FOR v_policy IN
            SELECT polname FROM pg_policy
            WHERE polrelid = v_table.oid AND polname IN ('tidewheel_worker', 'tidewheel_api', 'tidewheel_api_values')
        LOOP
            EXECUTE format('DROP POLICY %I ON %s', v_policy.polname, v_table.name);
        END LOOP;
        EXECUTE format(
            'CREATE POLICY tidewheel_worker ON %s TO tidewheel_worker USING (true) WITH CHECK (true)', v_table.name
        );
        IF v_table.of_tenants THEN
            -- Once it was set in a session, a setting that is not set reads as '', which is no tenant, either.
            EXECUTE format(
                'CREATE POLICY tidewheel_api ON %s TO tidewheel_api '
                'USING (tenant = nullif(current_setting(''app.tenant_id'', true), '''')) '
                'WITH CHECK (tenant = nullif(current_setting(''app.tenant_id'', true), ''''))', v_table.name
            );
        END IF;
    END LOOP;
END
$$;

-- to see that all is up to date
CREATE POLICY tidewheel_api ON schema_versions FOR SELECT TO tidewheel_api USING (true);
-- Pauses of topics that the tenant has jobs in: both tables show only its own.
CREATE POLICY tidewheel_api ON topics FOR SELECT TO tidewheel_api USING (
    EXISTS (SELECT FROM job_counts c WHERE c.topic = topics.topic)
    OR EXISTS (SELECT FROM counter_deltas t WHERE t.topic = topics.topic)
);
-- When a job goes that the tenant itself has ended.
CREATE POLICY tidewheel_api ON retention_queue FOR INSERT TO tidewheel_api WITH CHECK (
    cardinality(ids) = 1
    AND EXISTS (SELECT FROM finished_jobs f WHERE f.id = retention_queue.ids[1]
        AND f.prune_at = retention_queue.prune_at)
);

-- What a caller writes, workers read together with everybody else's, and one row that makes a statement fail would hold
-- all of them up: numbers that overflow when something is added, unexpected texts, bodies that do not exist.
-- 253402300799999999 is the end of the year 9999. A number that was not given out yet would move claims past all jobs.
CREATE POLICY tidewheel_api_values ON jobs AS RESTRICTIVE TO tidewheel_api USING (true) WITH CHECK (
    number BETWEEN 1 AND pg_sequence_last_value('numbers'::regclass) AND fence BETWEEN 0 AND 4611686018427387904
    AND priority BETWEEN -4611686018427387904 AND 4611686018427387904
    AND run_at BETWEEN 0 AND 253402300799999999 AND created_at BETWEEN 0 AND 253402300799999999
    AND coalesce(leased_until, 0) BETWEEN 0 AND 253402300799999999
    AND coalesce(claimed_at, 0) BETWEEN 0 AND 253402300799999999
    AND coalesce(started_at, 0) BETWEEN 0 AND 253402300799999999
    AND coalesce(expires_at, 0) BETWEEN 0 AND 253402300799999999
    AND coalesce(timeout_us, 0) BETWEEN 0 AND 253402300799999999
    AND coalesce(lease_us, 1) BETWEEN 1 AND 253402300799999999
    AND coalesce(retention_us, 0) BETWEEN 0 AND 253402300799999999
    AND coalesce(retention_failed_us, 0) BETWEEN 0 AND 253402300799999999
    AND greatest(attempt, max_attempts, blocked, reserves, timeouts, releases, buries, kicks, touches) <= 1000000000
    AND least(attempt, max_attempts, blocked, reserves, timeouts, releases, buries, kicks, touches) >= 0
    AND length(topic) BETWEEN 1 AND 200 AND length(task) <= 200 AND length(tenant) <= 200
    AND coalesce(length(worker), 0) <= 200 AND coalesce(length(error_summary), 0) <= 200
    AND (has_separate_body OR payload IS NOT NULL OR raw IS NOT NULL)
    -- Together they are in an index, whose entries have a largest size.
    AND coalesce(octet_length(topic) + octet_length(task) + octet_length(tenant) + octet_length(limit_key), 0) <= 2400
);
CREATE POLICY tidewheel_api_values ON finished_jobs AS RESTRICTIVE TO tidewheel_api USING (true) WITH CHECK (
    number BETWEEN 1 AND pg_sequence_last_value('numbers'::regclass) AND fence BETWEEN 0 AND 4611686018427387904
    AND priority BETWEEN -4611686018427387904 AND 4611686018427387904
    AND run_at BETWEEN 0 AND 253402300799999999 AND created_at BETWEEN 0 AND 253402300799999999
    AND finished_at BETWEEN 0 AND 253402300799999999
    AND coalesce(prune_at, 0) BETWEEN 0 AND 506804601599999998
    AND coalesce(retention_us, 0) BETWEEN 0 AND 253402300799999999
    AND coalesce(retention_failed_us, 0) BETWEEN 0 AND 253402300799999999
    AND greatest(attempt, max_attempts, reserves, timeouts, releases, buries, kicks, touches) <= 1000000001
    AND least(attempt, max_attempts, reserves, timeouts, releases, buries, kicks, touches) >= 0
    AND length(topic) BETWEEN 1 AND 200 AND length(task) <= 200
);
CREATE POLICY tidewheel_api_values ON counter_deltas AS RESTRICTIVE TO tidewheel_api USING (true) WITH CHECK (
    minute BETWEEN 0 AND 253402300799999999 AND minute % 60000000 = 0
    AND length(topic) BETWEEN 1 AND 200 AND length(task) <= 200
);

-- Whether row-level security is what `tidewheel migrate --rls` made, and roles are what they should be. Each statement
-- returns one line for each problem. Only catalogues are read. $1 is the schema.

-- name: roles_exist
SELECT format('the role %s is missing; tidewheel migrate --rls makes it', n.name)
FROM unnest(ARRAY['tidewheel_owner', 'tidewheel_worker', 'tidewheel_api']) AS n(name)
WHERE to_regrole(n.name) IS NULL AND $1::text IS NOT NULL

-- name: tables_guarded
SELECT format('row-level security of table %s is %s; tidewheel migrate --rls switches it on',
              c.relname, CASE WHEN c.relrowsecurity THEN 'not forced on its owner' ELSE 'off' END)
FROM pg_class c
WHERE c.relnamespace = to_regnamespace(quote_ident($1::text)) AND c.relkind IN ('r', 'p')
    AND NOT (c.relrowsecurity AND c.relforcerowsecurity)

-- name: policies_complete
-- A table with a column tenant has the policy of callers, every table that of workers, each exactly as it was made.
SELECT format('table %s has no policy %s, or a changed one; tidewheel migrate --rls makes it anew', c.relname, w.name)
FROM pg_class c, LATERAL (
    SELECT 'tidewheel_worker' AS name, 'true' AS rule
    UNION ALL
    SELECT 'tidewheel_api', '(tenant = NULLIF(current_setting(''app.tenant_id''::text, true), ''''::text))'
    FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped
) AS w
WHERE c.relnamespace = to_regnamespace(quote_ident($1::text)) AND c.relkind IN ('r', 'p') AND NOT EXISTS (
    SELECT FROM pg_policy p
    WHERE p.polrelid = c.oid AND p.polname = w.name AND p.polpermissive AND p.polcmd = '*'
        AND p.polroles = ARRAY[to_regrole(w.name)::oid]
        AND pg_get_expr(p.polqual, p.polrelid) = w.rule AND pg_get_expr(p.polwithcheck, p.polrelid) = w.rule
)

-- name: values_guarded
SELECT format('table %s has no policy tidewheel_api_values; tidewheel migrate --rls makes it', n.name)
FROM unnest(ARRAY['jobs', 'finished_jobs', 'counter_deltas']) AS n(name)
WHERE NOT EXISTS (
    SELECT FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
    WHERE c.relnamespace = to_regnamespace(quote_ident($1::text)) AND c.relname = n.name
        AND p.polname = 'tidewheel_api_values' AND NOT p.polpermissive
        AND p.polroles = ARRAY[to_regrole('tidewheel_api')::oid]
)

-- name: no_foreign_policies
-- A second permissive policy shows what the first one hides. Tables without tenants have theirs for callers, too.
SELECT format('table %s has a policy %s that Tidewheel did not make; DROP POLICY %I ON %s', c.relname, p.polname,
              p.polname, c.oid::regclass)
FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
WHERE c.relnamespace = to_regnamespace(quote_ident($1::text)) AND CASE p.polname
    WHEN 'tidewheel_worker' THEN false
    WHEN 'tidewheel_api' THEN c.relname NOT IN ('schema_versions', 'topics', 'retention_queue') AND NOT EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped
    )
    WHEN 'tidewheel_api_values' THEN p.polpermissive
    ELSE p.polpermissive END

-- name: functions_with_callers_rights
SELECT format('function %s runs with the rights of its owner, past all policies; ALTER FUNCTION %s SECURITY INVOKER',
              p.proname, p.oid::regprocedure)
FROM pg_proc p WHERE p.pronamespace = to_regnamespace(quote_ident($1::text)) AND p.prosecdef

-- name: views_with_callers_rights
SELECT format('view %s shows what its owner sees; ALTER VIEW %s SET (security_invoker = true)',
              c.relname, c.oid::regclass)
FROM pg_class c
WHERE c.relnamespace = to_regnamespace(quote_ident($1::text)) AND c.relkind IN ('v', 'm')
    AND NOT coalesce(c.reloptions && ARRAY['security_invoker=true', 'security_invoker=on', 'security_invoker=1'], false)

-- name: callers_restricted
-- Every role that is tidewheel_api, directly or by way of others, and what it must not be or have.
WITH RECURSIVE callers (oid) AS (
    SELECT to_regrole('tidewheel_api')::oid
    UNION
    SELECT m.member FROM pg_auth_members m JOIN callers c ON c.oid = m.roleid
), roles (oid, of) AS (
    SELECT oid, oid FROM callers
    UNION
    SELECT m.roleid, r.of FROM pg_auth_members m JOIN roles r ON r.oid = m.member
)
SELECT format(t.problem, r.rolname)
FROM callers c JOIN pg_roles r ON r.oid = c.oid, LATERAL (
    SELECT 'the role %1$s calls as tidewheel_api, but is a superuser, whom no policy holds; ALTER ROLE %1$I NOSUPERUSER'
        AS problem
    WHERE r.rolsuper
    UNION ALL
    SELECT 'the role %1$s calls as tidewheel_api, but bypasses row-level security; ALTER ROLE %1$I NOBYPASSRLS'
    WHERE r.rolbypassrls
    UNION ALL
    SELECT format('the role %%1$s calls as tidewheel_api, but is a member of %1$s as well; REVOKE %1$I FROM %%1$I',
                  h.rolname)
    FROM roles b JOIN pg_roles h ON h.oid = b.oid
    WHERE b.of = c.oid AND h.rolname IN ('tidewheel_owner', 'tidewheel_worker', 'pg_write_server_files',
                                         'pg_execute_server_program', 'pg_read_server_files')
    UNION ALL
    SELECT format('the role %%1$s calls as tidewheel_api, but owns %s; '
                  'tidewheel migrate --rls gives it to tidewheel_owner',
                  string_agg(o.name, ', ' ORDER BY o.name))
    FROM (
        SELECT nspname::text AS name, nspowner AS owner FROM pg_namespace WHERE nspname = $1::text
        UNION ALL
        SELECT relname, relowner FROM pg_class
        WHERE relnamespace = to_regnamespace(quote_ident($1)) AND relkind IN ('r', 'p', 'v', 'm', 'S')
        UNION ALL
        SELECT proname, proowner FROM pg_proc WHERE pronamespace = to_regnamespace(quote_ident($1))
    ) AS o
    WHERE o.owner = c.oid HAVING count(*) > 0
    UNION ALL
    SELECT format('the role %%1$s calls as tidewheel_api, but may make objects in %1$s; '
                  'REVOKE CREATE ON SCHEMA %1$I FROM PUBLIC, tidewheel_api, %%1$I', $1)
    WHERE NOT r.rolsuper AND to_regnamespace(quote_ident($1)) IS NOT NULL
        AND has_schema_privilege(c.oid, to_regnamespace(quote_ident($1)), 'CREATE')
    UNION ALL
    SELECT format('the role %%1$s calls as tidewheel_api, but may truncate or put triggers on %s, past all policies; '
                  'REVOKE TRUNCATE, TRIGGER ON ALL TABLES IN SCHEMA %I FROM PUBLIC, tidewheel_api, %%1$I',
                  string_agg(k.relname, ', ' ORDER BY k.relname), $1)
    FROM pg_class k
    WHERE k.relnamespace = to_regnamespace(quote_ident($1)) AND k.relkind IN ('r', 'p') AND NOT r.rolsuper
        AND has_table_privilege(c.oid, k.oid, 'TRUNCATE, TRIGGER')
    HAVING count(*) > 0
    UNION ALL
    SELECT format('the role %%1$s calls as tidewheel_api, but has rights on %1$s, where keys, users and secrets are; '
                  'REVOKE ALL ON %1$s FROM PUBLIC, tidewheel_api, %%1$I', k.oid::regclass)
    FROM pg_class k
    WHERE k.relnamespace = to_regnamespace(quote_ident($1)) AND k.relname = 'documents' AND NOT r.rolsuper
        AND (has_table_privilege(c.oid, k.oid, 'SELECT, INSERT, UPDATE, DELETE')
             OR has_any_column_privilege(c.oid, k.oid, 'SELECT, INSERT, UPDATE'))
) AS t

-- name: this_role_restricted
-- The role that runs this is taken for the one that workers use.
SELECT CASE
    WHEN r.rolsuper THEN format(
        'this connection is of the superuser %s, whom no policy holds; run workers and doctors as a member of '
        'tidewheel_worker, callers as a member of tidewheel_api', r.rolname)
    WHEN r.rolbypassrls THEN format('the role %1$s bypasses row-level security; ALTER ROLE %1$I NOBYPASSRLS', r.rolname)
    ELSE format('the role %s owns tables, and could change or remove every policy; use it to migrate only, and run '
                'workers as a member of tidewheel_worker', r.rolname) END
FROM pg_roles r
WHERE r.rolname = current_user AND (
    r.rolsuper OR r.rolbypassrls OR EXISTS (
        SELECT FROM pg_class c
        WHERE c.relnamespace = to_regnamespace(quote_ident($1::text)) AND c.relkind IN ('r', 'p')
            AND pg_has_role(c.relowner, 'MEMBER')
    )
)

-- What the server reports about itself. No table is read, except a single row of ours. Times as microseconds.

-- name: settings
SELECT name, current_setting(name) FROM unnest($1::text[]) AS n(name)

-- name: held_snapshots
-- Who holds a snapshot or a transaction id that vacuum of this database has to respect. Vacuum itself holds nothing
-- back, and a query's helpers hold what their leader does. Senders of the log to standbys have no transaction: see
-- replication_slots. What other roles do is hidden from roles that are not members of pg_read_all_stats: then one row
-- says only how many sessions there are.
(SELECT (extract(epoch FROM xact_start) * 1000000)::bigint AS since,
        extract(epoch FROM clock_timestamp() - xact_start)::double precision AS held,
        pid, usename::text, application_name, host(client_addr), state,
        greatest(age(backend_xmin), age(backend_xid)) AS transactions,
        left(query, $2::integer) AS query
 FROM pg_stat_activity
 WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
     AND (datname = current_database() OR datid IS NULL OR backend_type = 'walsender')
     AND backend_type NOT IN ('autovacuum worker', 'parallel worker') AND pid <> pg_backend_pid()
     AND pid NOT IN (SELECT v.pid FROM pg_stat_progress_vacuum v)
     AND clock_timestamp() - xact_start >= make_interval(secs => $1::double precision)
 ORDER BY 1 LIMIT $3::integer)
UNION ALL
SELECT NULL, NULL, count(*), NULL, NULL, NULL, NULL, NULL, NULL
FROM pg_stat_activity
WHERE query = '<insufficient privilege>' AND datname = current_database()
HAVING count(*) > 0

-- name: grantee
-- As a statement has it.
SELECT quote_ident(current_user)

-- name: prepared_transactions
SELECT (extract(epoch FROM prepared) * 1000000)::bigint,
       extract(epoch FROM clock_timestamp() - prepared)::double precision, gid, owner::text, age(transaction)
FROM pg_prepared_xacts
WHERE database = current_database()
    AND clock_timestamp() - prepared >= make_interval(secs => $1::double precision)
ORDER BY prepared LIMIT $2::integer

-- name: replication_slots
-- xmin is what a standby holds; catalog_xmin, of logical slots, concerns the catalogues alone. A slot in use moves
-- with its standby; one far behind is what keeps rows for ever. A standby without a slot (hot_standby_feedback) holds
-- its xmin in the sender's session, which is as old as the connection and says nothing of how long.
SELECT 'slot', slot_name::text, active, age(xmin) AS transactions
FROM pg_replication_slots
WHERE xmin IS NOT NULL AND (NOT active OR age(xmin) > $2::integer)
UNION ALL
SELECT 'standby', concat_ws(' at ', nullif(application_name, ''), coalesce(host(client_addr), pid::text)), true,
       age(backend_xmin)
FROM pg_stat_replication
WHERE age(backend_xmin) > $2::integer
ORDER BY 4 DESC LIMIT $1::integer

-- name: dead_rows
SELECT relname::text, n_dead_tup, n_live_tup,
       (extract(epoch FROM greatest(last_vacuum, last_autovacuum)) * 1000000)::bigint
FROM pg_stat_user_tables
WHERE schemaname = $1 AND n_dead_tup >= $2::bigint AND n_dead_tup >= n_live_tup * $3::double precision
ORDER BY n_dead_tup DESC LIMIT $4::integer

-- name: mostly_empty_tables
-- Of a row longer than 2 kB the long values are stored apart, so four rows fill a page at least: a table with fewer
-- of them is mostly empty. Only what the server has counted is asked, no table is read.
SELECT relname::text, pg_relation_size(relid), n_live_tup
FROM pg_stat_user_tables
WHERE schemaname = $1 AND coalesce(last_analyze, last_autoanalyze, last_vacuum, last_autovacuum) IS NOT NULL
    AND pg_relation_size(relid) >= greatest($2::bigint, (n_live_tup + n_dead_tup) * 8192)
ORDER BY 2 DESC LIMIT $3::integer

-- name: overdue_pruning
SELECT p.prune_at, n.now
FROM (SELECT {schema}.now_us($1::bigint) AS now) AS n
    LEFT JOIN LATERAL (
        SELECT q.prune_at FROM {schema}.retention_queue q WHERE q.prune_at <= n.now ORDER BY q.prune_at,
               q.number LIMIT 1
    ) AS p ON true

-- name: notifications
SELECT pg_notification_queue_usage()

-- name: connections
-- Also sessions of which nothing else is visible. Some are reserved for superusers and, since 16, for a role of their
-- own.
SELECT count(*)::integer,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
       - coalesce(current_setting('reserved_connections', true), '0')::integer
FROM pg_stat_activity WHERE backend_type = 'client backend' OR backend_type IS NULL AND datid IS NOT NULL

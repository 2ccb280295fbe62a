-- Each is one statement, and so of one moment.

-- name: lanes
SELECT o_topics, o_waiting, o_ready, o_running, o_completed, o_failed, o_cancelled, o_paused, o_paused_until
FROM {schema}.lanes($1::bigint, $2::text)

-- name: stats
SELECT * FROM {schema}.stats($1::bigint, $2::bigint, $3::text, $4::bigint, $5::integer, $6::integer, $7::integer)

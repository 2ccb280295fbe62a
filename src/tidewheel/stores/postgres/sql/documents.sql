-- An expired document is as good as gone, whether or not it was pruned already.

-- name: write
SELECT o_version FROM {schema}.write_documents($1::bigint, $2::text[], $3::text[], $4::bytea[], $5::bigint[],
       $6::bigint[])
ORDER BY o_ordinal

-- name: read
SELECT kind, id, body, created_at, updated_at, expires_at, version FROM {schema}.documents
WHERE kind = $1 AND id = $2 AND (expires_at IS NULL OR expires_at > {schema}.now_us($3::bigint))

-- name: newest
SELECT kind, id, body, created_at, updated_at, expires_at, version FROM {schema}.documents
WHERE kind = $1 AND (created_at, id) < ($2::bigint, $3::text COLLATE "C")
    AND (expires_at IS NULL OR expires_at > {schema}.now_us($4::bigint))
ORDER BY created_at DESC, id DESC LIMIT $5

-- name: remove
DELETE FROM {schema}.documents WHERE kind = $1 AND id = $2
RETURNING expires_at IS NULL OR expires_at > {schema}.now_us($3::bigint)

-- name: delete_expired
DELETE FROM {schema}.documents WHERE (kind, id) IN (
    SELECT kind, id FROM {schema}.documents WHERE expires_at <= (SELECT {schema}.now_us($1::bigint))
    ORDER BY expires_at, kind, id LIMIT $2 FOR UPDATE SKIP LOCKED
)

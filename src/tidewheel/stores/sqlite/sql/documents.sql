-- An expired document counts as deleted, whether or not it was pruned already.

-- name: write
INSERT INTO tidewheel_documents AS d (kind, id, body, created_at, updated_at, expires_at, version)
VALUES (:kind, :id, :body, :now, :now, :expires_at, 1)
ON CONFLICT (kind, id) DO UPDATE
SET body = excluded.body, updated_at = excluded.updated_at, expires_at = excluded.expires_at,
    created_at = CASE WHEN d.expires_at <= :now THEN excluded.created_at ELSE d.created_at END,
    version = CASE WHEN d.expires_at <= :now THEN 1 ELSE d.version + 1 END

-- name: version
SELECT version FROM tidewheel_documents
WHERE kind = :kind AND id = :id AND (expires_at IS NULL OR expires_at > :now)

-- name: read
SELECT kind, id, body, created_at, updated_at, expires_at, version FROM tidewheel_documents
WHERE kind = :kind AND id = :id AND (expires_at IS NULL OR expires_at > :now)

-- name: newest
SELECT kind, id, body, created_at, updated_at, expires_at, version FROM tidewheel_documents
WHERE kind = :kind AND (created_at, id) < (:created_at, :id) AND (expires_at IS NULL OR expires_at > :now)
ORDER BY created_at DESC, id DESC LIMIT :limit

-- name: remove
DELETE FROM tidewheel_documents WHERE kind = ? AND id = ?

-- name: delete_expired
DELETE FROM tidewheel_documents WHERE rowid IN (
    SELECT rowid FROM tidewheel_documents WHERE expires_at IS NOT NULL AND expires_at <= ?
    ORDER BY expires_at, kind, id LIMIT ?
)

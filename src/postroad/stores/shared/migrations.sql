-- name: migrations_applied
SELECT name, target FROM {migrations};

-- name: migration_record
INSERT INTO {migrations} (name, target, applied_at) VALUES (:name, :target, :now);

-- name: migration_forget
DELETE FROM {migrations} WHERE name = :name AND target = :target;

ALTER TABLE movies ADD COLUMN tag TEXT NOT NULL DEFAULT 'none' CHECK (length(tag) < 9)

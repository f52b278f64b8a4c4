"""What keeps the record and Dagster's own files in order: verify, fsck, backup, retention."""

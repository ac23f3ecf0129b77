"""Messages of wal2json, PostgreSQL's output plug-in that writes changes as JSON."""

"""Objects in SQLite: one counter of versions, a log of changes for watches, a transaction for each request."""

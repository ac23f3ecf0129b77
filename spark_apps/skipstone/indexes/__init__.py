"""Lookup indexes: definition, build, coverage, compaction and lookup. Runs and queries call it; it knows neither."""

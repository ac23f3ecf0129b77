"""Programs that a kept driver runs in tests, in place of those of runs."""

"""Plans in which scans of fewer files stand in the place of relations, and the trial of such a plan."""

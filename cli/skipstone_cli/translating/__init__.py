"""MERGE statements of SQL as MergeJobs. A statement goes over whole, or each part that does not is named."""

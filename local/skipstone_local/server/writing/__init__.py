"""What a write means: metadata, defaults, versions, deletion, garbage collection, quotas."""

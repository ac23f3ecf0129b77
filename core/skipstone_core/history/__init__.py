"""What a table remembers of commits: records, their archives, lineages, and files that were consumed."""

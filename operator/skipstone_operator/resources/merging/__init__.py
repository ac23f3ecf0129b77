"""What a MergeJob says of the rows of its source and of its table."""

"""What keeps a table small: expired snapshots, files that nothing names, manifests written again."""

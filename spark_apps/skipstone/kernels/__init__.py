"""What happens to rows: Arrow kernels that match, change and write them again. Knows no run and no index."""

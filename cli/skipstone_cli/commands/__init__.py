"""The order of steps of each command: read, judge, show. Each returns its exit code."""

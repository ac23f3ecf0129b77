"""``skipstone local …``: the order of steps of each command. Each returns its exit code."""

"""The commands below `skipstone local`: the order of steps of each."""

"""The applications of runs: what `python -m skipstone.apps.KIND` does in the container of a run of that kind."""

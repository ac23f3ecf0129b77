"""The order of steps of each run, one module per kind, and how a run reports. Holds no kernel of its own."""

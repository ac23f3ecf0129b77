"""A kept driver on this machine: a stand-in for the API server, and programs that take the place of runs."""

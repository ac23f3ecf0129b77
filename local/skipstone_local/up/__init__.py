"""One process that serves a folder: the API server, the runner and the operator."""

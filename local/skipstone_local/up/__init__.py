"""One process that serves a folder: the API server, the runner and the operator."""

from skipstone_local.up.serving import UpOptions, run, serving_all

__all__ = ["UpOptions", "run", "serving_all"]

"""``python -m skipstone.serving``: serves until the process is told to end."""

from __future__ import annotations

import os

from skipstone.starting import lean_imports

if __name__ == "__main__":
    with lean_imports():
        from skipstone.serving.server import run_server

    raise SystemExit(run_server(os.environ))

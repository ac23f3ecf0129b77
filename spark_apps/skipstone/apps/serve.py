"""Application of the server that plans scans. What it does is in ``skipstone.serving``."""

from __future__ import annotations

import os

from skipstone.starting import lean_imports

if __name__ == "__main__":
    with lean_imports():
        from skipstone.serving.server import run_server

    raise SystemExit(run_server(os.environ))

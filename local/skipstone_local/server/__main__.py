"""Serves a root folder: `python -m skipstone_local.server DIR`, until SIGTERM."""

from __future__ import annotations

import sys
from pathlib import Path

from skipstone_local.server import serve

if __name__ == "__main__":
    serve(Path(sys.argv[1]))

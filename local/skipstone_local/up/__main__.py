"""Serves a folder with all that runs need: `python -m skipstone_local.up DIR [--once] [MANIFESTS...]`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from skipstone_local.up import UpOptions, run

if __name__ == "__main__":
    folder, *rest = sys.argv[1:]
    options = UpOptions(once="--once" in rest)
    manifests = [word for word in rest if word != "--once"]
    sys.exit(run(Path(folder), manifests, options, lambda line: print(line, flush=True), os.environ))  # noqa: T201

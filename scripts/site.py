"""Stage the pages of the documentation with what they link to, then build the site. Links and anchors are checked.

Usage: scripts/site.py. Pages stay as they are in the repository, so that they read the same in both places.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STAGE = ROOT / "build" / "docs"
PAGES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
FOLDERS = ("docs", "examples")


def main() -> int:
    """The exit code of mkdocs."""
    shutil.rmtree(STAGE, ignore_errors=True)
    for name in (*PAGES, *_files()):
        place = STAGE / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, place)
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        "--config-file",
        str(ROOT / "mkdocs.yml"),
    ]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False).returncode


def _files() -> list[str]:
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", *FOLDERS]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())

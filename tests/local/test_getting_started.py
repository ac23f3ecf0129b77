"""docs/getting-started.md followed as printed: programs print what the page says that they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Block, blocks_of

PAGE = "docs/getting-started.md"
BLOCKS = blocks_of(PAGE)
WITHOUT_JAVA = {**os.environ, "JAVA_HOME": "/nonexistent"}
#: What another run may print otherwise: seconds and minutes, and with them the widths of columns.
VARYING = re.compile(r"\b\d+m?\d*s\b|  +")


def follow(program: list[str], text: str, folder: Path, environment: Mapping[str, str]) -> str:
    """What the program prints that reads ``text``."""
    done = subprocess.run(program, input=text, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stderr.replace("the report is in report.html\n", "") == ""
    return done.stdout


def blocks_in(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def test_the_program_prints_what_the_page_says(tmp_path: Path) -> None:
    folder = tmp_path / "my work"
    folder.mkdir()
    program = "".join(block.text for block in blocks_in("python"))
    printed = follow([sys.executable, "-"], program, folder, WITHOUT_JAVA)
    assert printed == "".join(block.text for block in blocks_in("text")[:2])


@pytest.mark.soak
def test_the_commands_print_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = "".join(block.text for block in blocks_in("sh") if not block.text.startswith("python3 -m venv"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed = follow(["bash", "-e"], commands, tmp_path, {**WITHOUT_JAVA, "PATH": path, "COLUMNS": "160"})
    expected, found = (VARYING.sub(" ", text) for text in (blocks_in("text")[2].text, printed))
    assert expected in found
    assert (tmp_path / "report.html").stat().st_size > 10_000

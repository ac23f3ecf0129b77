"""Commands on a folder that nobody serves: each serves it for itself, and says what only an operator would do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from skipstone_cli.app import app
from typer.testing import CliRunner, Result

ORDERS = Path(__file__).parents[2] / "examples" / "orders"


def run(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"SKIPSTONE_LOCAL": str(root), "NO_COLOR": "1"})


def test_a_folder_that_nobody_serves_is_served_by_each_command(tmp_path: Path) -> None:
    nowhere = tmp_path / "none"
    missing = run(nowhere, "status")
    assert missing.exit_code == 2
    assert f"{nowhere} holds nothing of Skipstone: run 'skipstone local up --root {nowhere}' first" in missing.stderr
    root = tmp_path / "my lake"
    applied = run(root, "local", "apply", "-f", str(ORDERS / "02-table.yaml"), "-f", str(ORDERS / "03-index.yaml"))
    assert applied.stdout.split("\n")[:2] == [
        "table.skipstone.dev/orders created",
        "secondaryindex.skipstone.dev/orders-by-customer created",
    ]
    assert run(root, "local", "get", "tbl,si", "-o", "name").stdout == (
        "table.skipstone.dev/orders\nsecondaryindex.skipstone.dev/orders-by-customer\n"
    )
    assert "tbl/orders" in run(root, "status").stdout
    command = [sys.executable, "-m", "skipstone_cli", "why", "tbl/x", "--local", str(root)]
    elsewhere = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"'skipstone local get tbl --namespace default --root '{root}''" in elsewhere.stderr
    both = run(root, "status", "--local", str(root), "--context", "c")
    assert "leave out --kubeconfig and --context" in both.stderr


def test_what_only_an_operator_does_is_not_waited_for(tmp_path: Path) -> None:
    run(tmp_path, "local", "apply", "-f", str(ORDERS / "02-table.yaml"), "-f", str(ORDERS / "03-index.yaml"))
    for command in (
        ("reindex", "si/orders-by-customer", "--wait"),
        ("merge", "--dry-run", "-f", str(ORDERS / "05-merge.yaml")),
    ):
        waited = run(tmp_path, *command)
        assert waited.exit_code == 2
        assert "nobody runs what is asked for: start 'skipstone local up' beside this, and ask again" in waited.stderr
    assert "No resources found" in run(tmp_path, "local", "get", "mj").stderr

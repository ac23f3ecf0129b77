"""The orders example as docs/testbed.md tells it, command by command: real runs, beside a kubelet without containers.

What a cluster alone can do (its context, the chart's pods) is left out; every other command is taken from the page.
"""

from __future__ import annotations

import multiprocessing
import re
import shlex
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from skipstone_core.contract.requests import RunKind

from tests.cluster.controlplane import ControlPlane
from tests.cluster.volumes import create_volume, delete_volume
from tests.kube.faults.driver import APPLICATIONS, drive
from tests.kube.reconcile_lab import Site, run_scenario

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "testbed.md"
NAMESPACE = "lake"
WAITS = {"lj": "LoadJob", "mj": "MergeJob"}
ORDERS = [(1, "ada"), (2, "grace"), (4, "edsger"), (5, "grace"), (6, "barbara")]


def commands() -> list[list[str]]:
    """The commands of the page's section on the example."""
    section = PAGE.read_text().split("## The orders example")[1].split("\n## ")[0]
    block = section.split("```sh\n")[1].split("```")[0].replace("\\\n", " ")
    return [shlex.split(line) for line in block.strip().splitlines()]


def test_the_page_names_every_file_that_exists_and_installs_the_chart() -> None:
    files = [word for command in commands() for word in command if word.startswith(("examples/", "charts/"))]
    assert files
    assert [name for name in files if not (REPOSITORY / name).exists()] == []
    page = PAGE.read_text().split("## The orders example")[1]
    assert all((REPOSITORY / "examples/orders" / name).exists() for name in re.findall(r"`(\d\d-[a-z-]+\.yaml)`", page))


@pytest.mark.cluster("it has no persistent volumes: a claim is a folder")
def test_following_the_page_word_for_word_works(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig_admin))
    control_plane.kubectl("create", "namespace", NAMESPACE)
    folder = create_volume(control_plane, NAMESPACE, empty=True)

    # Spark in a process of its own: it leaves sockets to the garbage collector.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:

        async def scenario(site: Site) -> None:
            site.kubelet.pool, site.kubelet.drive, site.kubelet.root = pool, drive, str(folder)
            for command in commands():
                await follow(site, control_plane, folder, command)

        try:
            # Index runs may follow the last command: the pool outlives the kubelet that hands them to it.
            run_scenario(control_plane, NAMESPACE, scenario)
            assert rows_of(folder) == ORDERS
        finally:
            control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
            delete_volume(control_plane, NAMESPACE)


def rows_of(folder: Path) -> list[tuple[int, str]]:
    """The rows of the table of orders, in order."""
    catalog = SqlCatalog("skipstone", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder))
    try:
        rows = catalog.load_table("sales.orders").scan().to_arrow().to_pylist()
    finally:
        catalog.engine.dispose()
    return sorted((row["order_id"], row["customer"]) for row in rows)


async def follow(site: Site, plane: ControlPlane, folder: Path, command: list[str]) -> None:
    """Carry one command of the page out."""
    match command:
        case ["kubectl", "apply", *rest]:
            plane.kubectl("apply", *(str(REPOSITORY / w) if w.startswith("examples/") else w for w in rest))
        case ["kubectl", "wait", *rest]:
            kind, name = next(word for word in rest if "/" in word).split("/")

            async def complete() -> bool:
                return (await site.condition(WAITS[kind], name, "Complete"))[0] == "True"

            await site.until(complete, f"{name} Complete", seconds=600)
        case ["cp", "-R", source, _]:
            shutil.copytree(REPOSITORY / source, folder, dirs_exist_ok=True)
        case ["python3", "-m", "tests.cluster", "volume", name]:
            assert folder.name == name


def test_every_kind_of_run_has_an_application() -> None:
    assert [kind for kind in RunKind if not (APPLICATIONS / f"{kind.value.lower()}.py").exists()] == []

"""`make soak-orchestrators`: the recipes for Airflow and Dagster against the embedded cluster, with real merges.

Their schedulers are not run: tasks and assets are called as those would call them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.kube import Kube
from tests.cluster.layout import NODE
from tests.docs.blocks import ROOT
from tests.docs.test_soak import remove, volume

UV = ROOT / ".cache" / "uv" / "bin" / "uv"
ENVIRONMENTS = ROOT / ".cache" / "orchestrators"
RECIPES = ROOT / "examples" / "orchestration"
#: What each environment has; the tests run with the newest of these.
PACKAGES = {
    "airflow": ("apache-airflow>=3,<4", "apache-airflow-providers-cncf-kubernetes>=10"),
    "dagster": ("dagster>=1.12,<2", "kubernetes"),
}
NAMESPACE, SYSTEM = "orchestrated", "orchestrated-system"
HOUR = "2026-03-01-09:00"
pytestmark = [pytest.mark.soak, pytest.mark.timeout(5400)]


def python_of(name: str) -> Path:
    """The interpreter of the environment ``name``, made if it is missing."""
    python = ENVIRONMENTS / name / "bin" / "python"
    if not python.exists():
        subprocess.run([UV, "venv", "--quiet", ENVIRONMENTS / name], check=True)
        subprocess.run([UV, "pip", "install", "--quiet", "--python", python, *PACKAGES[name]], check=True)
    return python


@pytest.fixture(scope="module")
def kube() -> Iterator[Kube]:
    """The cluster, with the table of orders and what the recipes merge."""
    found = Kube.find()
    remove(found, (NAMESPACE, SYSTEM), NAMESPACE)
    folder = NODE.volumes / NAMESPACE
    found.apply(volume(NAMESPACE, NAMESPACE, folder))
    shutil.copytree(ROOT / "examples" / "orders" / "data", folder, dirs_exist_ok=True)
    hour = folder / "feeds" / "hours" / HOUR.replace(":", "")
    for place in (folder / "feeds" / "orders", hour):
        place.mkdir(parents=True)
        shutil.copy(folder / "feeds" / "orders-1.json", place)
    found.run("create", "namespace", NAMESPACE)
    images = ("--set", "image.operator=localhost/skipstone-operator:dev", "--set", "image.pullPolicy=Never")
    images += ("--set", "image.spark=localhost/skipstone-spark:dev", "--set", f"watchNamespaces={{{NAMESPACE}}}")
    more = tuple(os.environ.get("SKIPSTONE_DOCS_HELM", "").split())
    chart = str(ROOT / "charts" / "skipstone")
    found.within(SYSTEM).run_helm("install", "skipstone", chart, "--create-namespace", "--wait", *images, *more)
    lake = found.within(NAMESPACE)
    for name in ("01-warehouse", "02-table", "04-load"):
        lake.run("apply", f"--filename={ROOT}/examples/orders/{name}.yaml")
    lake.run("wait", "--for=condition=Complete", "lj/orders-2026-01", "--timeout=570s")
    lake.run("apply", f"--filename={RECIPES}/account.yaml")
    yield lake
    remove(found, (NAMESPACE, SYSTEM), NAMESPACE)


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    """The files as a user copies them, with the namespace changed."""
    for path in RECIPES.glob("*.py"):
        text = path.read_text().replace('NAMESPACE = "lake"', f'NAMESPACE = "{NAMESPACE}"')
        (tmp_path / path.name).write_text(text)
    return tmp_path


def run(command: list[str | Path], kube: Kube, folder: Path) -> dict[str, Any]:
    """What a program answers."""
    environment = {**kube.environment, "PYTHONPATH": str(folder), "AIRFLOW_HOME": str(folder / "airflow")}
    environment |= {"DAGSTER_HOME": str(folder), "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "900"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    answer: dict[str, Any] = json.loads(line.removeprefix("ANSWER "))
    return answer


def test_airflow_merges_and_its_pod_is_taken(kube: Kube, recipes: Path) -> None:
    program = [python_of("airflow"), Path(__file__).with_name("airflow_run.py"), recipes / "airflow_dag.py"]
    answer = run([*program, "orders-20260301t090000"], kube, recipes)
    assert {name: answer["rows"][name] for name in ("updated", "deleted", "inserted")} == {
        "updated": 1,
        "deleted": 1,
        "inserted": 1,
    }
    # A task that is tried again finds its own job, and adds nothing.
    assert run([*program, "orders-20260301t090000"], kube, recipes)["rows"] == answer["rows"]
    kube.run("create", "--dry-run=server", "--filename", "-", text=json.dumps(answer["pod"]))
    # What the pod would run, with this machine's kubectl.
    tools = {"PATH": f"{Path(kube.kubectl).parent}:{os.environ['PATH']}", "NAME": "orders-pod", "NAMESPACE": NAMESPACE}
    spec = next(env["value"] for env in answer["pod"]["spec"]["containers"][0]["env"] if env["name"] == "SPEC")
    assert "params.spec" in spec
    recipe = kube.get("mergejob", "orders-20260301t090000")
    assert recipe
    wanted = {name: value for name, value in recipe["spec"].items() if name in ("tableRef", "source", "keys")}
    wanted |= {"sequenceBy": "seq", "whenMatched": [{"action": "Update"}], "whenNotMatched": [{"action": "Insert"}]}
    for _ in ("once", "again"):
        subprocess.run(
            ["sh", "-c", answer["script"]], env={**kube.environment, **tools, "SPEC": json.dumps(wanted)}, check=True
        )


def test_dagster_materializes_a_partition(kube: Kube, recipes: Path) -> None:
    program = (
        "import json, dagster as dg, dagster_assets as recipe\n"
        f"made = dg.materialize([recipe.orders], partition_key={HOUR!r})\n"
        "(event,) = made.asset_materializations_for_node('orders')\n"
        "print('ANSWER ' + json.dumps(event.metadata['rows'].value))\n"
    )
    answer = run([python_of("dagster"), "-c", program], kube, recipes)
    assert answer["inserted"] + answer["updated"] + answer.get("unchanged", 0) > 0

"""What people install: one wheel, published to an index and installed from it where there is no checkout.

The index is a real one, on the loopback address. All that is not ours comes from where uv takes it otherwise.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from http.client import HTTPConnection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from skipstone_core.errors import way_to_install

from release.artifacts import UV, build_wheel, publish_wheel
from release.distribution import BASE, EXTRAS, read_metadata
from release.versions import MEMBERS, chart_version
from tests.cluster.errors import ClusterError
from tests.cluster.layout import REPOSITORY
from tests.ports import answering_port

PACKAGES = {
    "core": "skipstone_core",
    "report": "skipstone_report",
    "operator": "skipstone_operator",
    "spark_apps": "skipstone",
    "cli": "skipstone_cli",
    "local": "skipstone_local",
}


MANIFESTS = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: lake}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: skipstone.dev/v1alpha1
kind: Warehouse
metadata: {name: lake}
spec:
  storage: {pvc: {claimName: lake}}
  catalog: {type: Sql}
---
apiVersion: skipstone.dev/v1alpha1
kind: Table
metadata: {name: orders}
spec:
  warehouseRef: {name: lake}
  identifier: {namespace: sales, name: orders}
  columns:
  - {name: id, type: long}
  - {name: name, type: string}
---
apiVersion: skipstone.dev/v1alpha1
kind: LoadJob
metadata: {name: one}
spec:
  tableRef: {name: orders}
  source: {format: Parquet, paths: [in/a.parquet]}
"""


@dataclass(frozen=True)
class Index:
    """A running index of Python packages, which takes uploads of one user."""

    address: str
    folder: Path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("index")
    # "secret", as htpasswd writes it.
    (folder / "users").write_text("releaser:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n")
    (folder / "packages").mkdir()
    log = folder / "log"
    words = ["-m", "pypiserver", "run", "--interface", "127.0.0.1", "--port", "0", "--disable-fallback"]
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, *words, "--passwords", folder / "users", folder / "packages"], stdout=out, stderr=out
        )
        try:
            port = answering_port(server, _answers, log, seconds=300)
            yield Index(f"http://127.0.0.1:{port}", folder / "packages")
        finally:
            server.terminate()
            server.wait(timeout=60)


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/simple/")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def test_the_wheel_carries_every_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names} == {
        *PACKAGES.values(),
        f"skipstone-{chart_version()}.dist-info",
    }
    written = {
        str(path.relative_to(REPOSITORY / member))
        for member, package in PACKAGES.items()
        for path in (REPOSITORY / member / package).rglob("*.py")
    }
    assert {name for name in names if name.endswith(".py")} == written
    assert f"skipstone-{chart_version()}.dist-info/licenses/LICENSE" in names


def test_extras_need_what_their_packages_need(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = HeaderParser().parsestr(archive.read(f"skipstone-{chart_version()}.dist-info/METADATA").decode())
    assert set(metadata.get_all("Provides-Extra", [])) == set(EXTRAS)
    needed = metadata.get_all("Requires-Dist", [])
    assert not [one for one in needed if one.startswith("skipstone")]
    base = {one for one in needed if ";" not in one}
    assert not [one for one in base if one.startswith(("pyspark", "pyarrow", "kopf"))]
    assert any(one.startswith("pyspark") and "'spark'" in one for one in needed)
    assert any(one.startswith("kopf") and "'operator'" in one for one in needed)


def test_every_member_is_in_the_base_or_in_an_extra() -> None:
    placed = {*BASE, *(member for members in EXTRAS.values() for member in members)}
    assert {".", *placed} == set(MEMBERS)
    described = read_metadata(REPOSITORY)
    for member in placed:
        project = tomllib.loads((REPOSITORY / member / "pyproject.toml").read_text())["project"]
        assert project.get("scripts", {}).items() <= described["scripts"].items()
        foreign = {one for one in project["dependencies"] if not one.startswith("skipstone")}
        assert foreign <= {*described["dependencies"], *described["optional-dependencies"]["local"]}


def test_the_command_line_is_installed_from_an_index_without_a_checkout(
    wheel: Path, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_PUBLISH_USERNAME", "releaser")
    monkeypatch.setenv("UV_PUBLISH_PASSWORD", "wrong")
    with pytest.raises(ClusterError):
        publish_wheel(wheel, index.address)
    assert not [*index.folder.iterdir()]
    monkeypatch.setenv("UV_PUBLISH_PASSWORD", "secret")
    publish_wheel(wheel, index.address)
    assert [one.name for one in index.folder.iterdir()] == [wheel.name]

    place = install("skipstone", index, tmp_path)
    assert said(place / "skipstone", "--version") == f"skipstone {chart_version()}\n"
    assert "Show Warehouses" in said(place / "kubectl-skipstone", "status", "--help")
    done = run(place / "skipstone", "local", "get", "tables")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f", which is not installed: {way_to_install('local')}\n")
    there = said(place / "python", "-c", "import skipstone_core; print(skipstone_core.__file__)")
    assert there.startswith(str(tmp_path))
    done = run(place / "python", "-c", "import skipstone")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: skipstone lacks the packages by which it reads tables: {way_to_install('spark')}"
    )


#: What `skipstone.open` does with the extra `spark` alone.
WITHOUT_LOCAL = """
skipstone.sql
try:
    skipstone.open("lake")
except skipstone.LakeError as error:
    assert "which is not installed: run pip install '.[local]'" in str(error), error
else:
    raise AssertionError("the extra local is not needed")
"""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("extra", "program"),
    [
        ("cli", "import skipstone_cli.app"),
        ("spark", f"import skipstone.query, skipstone.session, skipstone.serving.server, skipstone{WITHOUT_LOCAL}"),
        ("operator", "import skipstone_operator.__main__, skipstone_operator.watch"),
    ],
)
def test_an_extra_makes_its_packages_work(wheel: Path, index: Index, tmp_path: Path, extra: str, program: str) -> None:
    (index.folder / wheel.name).write_bytes(wheel.read_bytes())
    place = install(f"skipstone[{extra}]", index, tmp_path)
    assert said(place / "python", "-W", "error", "-c", program) == ""


@pytest.mark.soak
def test_what_is_installed_from_an_index_loads_a_table_on_this_machine(
    wheel: Path, index: Index, tmp_path: Path
) -> None:
    (index.folder / wheel.name).write_bytes(wheel.read_bytes())
    place = install("skipstone[local]", index, tmp_path)
    folder = tmp_path / "a lake"
    landing = folder / "claims" / "default" / "lake" / "in"
    landing.mkdir(parents=True)
    folder.chmod(0o700)
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), landing / "a.parquet")
    manifests = tmp_path / "manifests.yaml"
    manifests.write_text(MANIFESTS)
    shown = said(place / "skipstone", "local", "up", "--once", "--root", str(folder), "-f", str(manifests))
    assert "lj/one  Complete  Committed" in shown
    got = said(place / "skipstone", "local", "get", "tbl", "--root", str(folder))
    name, ready, rows = got.splitlines()[1].split()[:3]
    assert (name, ready, rows) == ("orders", "True", "2")


def install(what: str, index: Index, folder: Path) -> Path:
    """Install a requirement into an environment of its own; the folder of its programs."""
    uv = [UV, "--quiet", "--no-config"]
    subprocess.run([*uv, "venv", "--python", sys.executable, folder / "venv"], cwd=folder, check=True, timeout=600)
    words = ["pip", "install", "--python", folder / "venv", "--index", f"{index.address}/simple/"]
    subprocess.run([*uv, *words, "--refresh-package", "skipstone", what], cwd=folder, check=True, timeout=900)
    return folder / "venv" / "bin"


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program where no checkout is near."""
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [program, *arguments], cwd=program.parent, env=clean, capture_output=True, text=True, check=False, timeout=300
    )


def said(program: Path, *arguments: str) -> str:
    done = run(program, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout

"""A release as people make, check, install and upgrade to it: `make release` into a real registry, signed by cosign,
installed from `oci://` by the node's own pulls, tested by `helm test`; and an upgrade from an earlier version while its
jobs run.

FROM names the commit to upgrade from; without it, the newest tag. Run by `make soak-release`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.kube import ROOT, Kube, condition
from release.artifacts import has_chart
from release.versions import Registry as Named
from release.versions import chart_version
from tests.cluster.errors import ClusterError
from tests.cluster.toolchain import build_tools
from tests.e2e.lake import Lake, change, has_ended, index, load, merge, people, table, warehouse
from tests.e2e.release_bed import (
    SYSTEM,
    Registry,
    apply_crds,
    build_earlier,
    check_out,
    find_earlier,
    install,
    pods_images,
    registry_running,
    release_lake,
    run_release,
)

pytestmark = pytest.mark.soak
VERSION = chart_version()
OFFLINE = ("--insecure-ignore-tlog=true", "--new-bundle-format=false")


@dataclass(frozen=True)
class Released:
    """A release in a registry: the folder with its record, and the public key of who signed it."""

    registry: Registry
    folder: Path
    public_key: Path
    environment: dict[str, str]

    @property
    def digests(self) -> dict[str, str]:
        """The digest of everything that was pushed, by its name without the registry."""
        pushed = json.loads((self.folder / "release.json").read_text())["pushed"]
        return {one["name"].rpartition("/")[2] + "|" + one["name"]: one["digest"] for one in pushed}

    def exact(self, name: str) -> str:
        """The full name with the digest of an image or of the chart (`skipstone`)."""
        ((key, digest),) = ((key, one) for key, one in self.digests.items() if key.startswith(f"{name}|"))
        return f"{key.partition('|')[2]}@{digest}"


@pytest.fixture(scope="module")
def cosign() -> Path:
    return build_tools(["cosign"])["cosign"]


def make_key(cosign: Path, folder: Path) -> Path:
    """A key pair without a password in ``folder``; the public one."""
    folder.mkdir(parents=True)
    environment = {**os.environ, "COSIGN_PASSWORD": ""}
    subprocess.run([cosign, "generate-key-pair"], cwd=folder, env=environment, check=True, timeout=600)
    return folder / "cosign.pub"


@pytest.fixture(scope="module")
def released(kube: Kube, cosign: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    """This version, released into a registry that ends with the tests."""
    folder = tmp_path_factory.mktemp("release")
    public = make_key(cosign, folder / "key")
    with registry_running(folder / "registry") as registry:
        environment = {
            "REGISTRY": registry.place,
            "KEY": str(public.with_name("cosign.key")),
            "COSIGN": str(cosign),
            "COSIGN_PASSWORD": "",
        }
        done = run_release("publish", environment)
        assert done.returncode == 0, done.stderr
        found = Released(registry, ROOT / "build" / "release", public, environment)
        assert all(digest in done.stdout for digest in found.digests.values())
        yield found


@pytest.fixture
def lake(kube: Kube, released: Released) -> Iterator[Lake]:
    """A lake without an operator."""
    with release_lake(kube) as made:
        yield made


def verify(cosign: Path, key: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [cosign, arguments[0], "--key", key, *OFFLINE, *arguments[1:]]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)


def test_everything_that_was_pushed_is_signed_by_the_key_alone(
    released: Released, cosign: Path, tmp_path: Path
) -> None:
    other = make_key(cosign, tmp_path / "other")
    for name in ("skipstone-operator", "skipstone-spark", "skipstone"):
        done = verify(cosign, released.public_key, "verify", released.exact(name))
        assert done.returncode == 0, done.stderr
        assert verify(cosign, other, "verify", released.exact(name)).returncode != 0


@pytest.mark.parametrize(("image", "part"), [("skipstone-operator", "kopf"), ("skipstone-spark", "pyspark")])
def test_the_bill_of_materials_is_attested(released: Released, cosign: Path, image: str, part: str) -> None:
    done = verify(cosign, released.public_key, "verify-attestation", "--type", "cyclonedx", released.exact(image))
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    statement = json.loads(subprocess.check_output(["base64", "-d"], input=json.loads(line)["payload"].encode()))
    assert part in {one["name"] for one in statement["predicate"]["components"]}
    assert f"sha256:{statement['subject'][0]['digest']['sha256']}" in released.exact(image)


def test_wheel_and_chart_have_signed_sums(released: Released, cosign: Path) -> None:
    sums = released.folder / "SHA256SUMS"
    done = verify(cosign, released.public_key, "verify-blob", "--signature", f"{sums}.sig", str(sums))
    assert done.returncode == 0, done.stderr
    subprocess.run(["sha256sum", "--check", "--strict", sums.name], cwd=released.folder, check=True, timeout=60)
    named = [Path(line.split()[1]).name for line in sums.read_text().splitlines()]
    assert sorted(named) == [f"skipstone-{VERSION}-py3-none-any.whl", f"skipstone-{VERSION}.tgz"]


def test_a_version_is_released_once(released: Released) -> None:
    done = run_release("publish", released.environment)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: oci://{released.registry.place}/charts has the chart {VERSION} already: ")


def test_the_chart_of_the_registry_installs_and_helm_test_passes(
    released: Released, lake: Lake, kube: Kube, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print(apply_crds(kube, ROOT))
    install_released(kube, released)
    system = kube.within(SYSTEM)
    (pod,) = system.items("pods", "app.kubernetes.io/component=operator")
    assert released.exact("skipstone-operator").partition("@")[2] in pod["spec"]["containers"][0]["image"]
    pulls = [event for event in system.items("events") if event["reason"] in {"Pulled", "Failed"}]
    assert any("Successfully pulled" in event["message"] for event in pulls), pulls
    assert "Phase:          Succeeded" in system.run_helm("test", "skipstone", "--timeout", "600s")
    lake.write("in/1.parquet", people(1, 30))
    lake.apply(warehouse(), table(), load("one", "in/1.parquet"))
    lake.until_complete("lj", "one")
    assert [row["id"] for row in lake.rows()] == list(range(1, 31))


def install_released(kube: Kube, released: Released) -> None:
    """Install or upgrade from the registry, as the docs say it."""
    install(kube, released.registry.chart, "--version", VERSION, "--plain-http")


def test_an_upgrade_amid_jobs_loses_and_doubles_nothing(
    released: Released, lake: Lake, kube: Kube, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = find_earlier(os.environ.get("FROM", ""))
    folder = check_out(commit)
    earlier = {
        name.removeprefix("skipstone-"): released.registry.push(tag, f"{name}:{commit[:12]}")
        for name, tag in build_earlier(folder).items()
    }
    with capsys.disabled():
        print(f"upgrade from {commit}; {apply_crds(kube, folder)}")
    install(kube, str(folder / "charts" / "skipstone"), images={f"image.{part}": n for part, n in earlier.items()})
    begin_work(lake)
    assert earlier["spark"] in pods_images(lake.kube, "spark-role=driver").values()
    unfinished = [job for job in lake.kube.items("lj,mj") if not has_ended(job)]
    with capsys.disabled():
        print(apply_crds(kube, ROOT))
    install_released(kube, released)
    assert len(unfinished) >= 3, [job["metadata"]["name"] for job in unfinished]
    assert "Phase:          Succeeded" in kube.within(SYSTEM).run_helm("test", "skipstone", "--timeout", "600s")
    finish_work(lake, released)


def begin_work(lake: Lake) -> None:
    """A table with both kinds of indexes, one finished load, and jobs of which the first has a running driver."""
    for number in range(1, 5):
        lake.write(f"in/{number}.csv", people(100 * number - 99, 100 * number))
    lake.write("feeds/1.csv", [change("U", 7, "renamed", "Oslo"), change("D", 8), change("I", 900, "new", "Bonn")])
    inline = index("by-name", ["name"], maintenance="Inline")
    lake.apply(warehouse(maxConcurrentRuns=2), table(), index("by-city", ["city"]), inline, load("one", "in/1.csv"))
    lake.until_complete("lj", "one")
    lake.apply(*(load(f"load-{number}", f"in/{number}.csv") for number in range(2, 5)), merge("changes", "feeds/1.csv"))

    def runs() -> bool:
        drivers = lake.kube.items("pods", "spark-role=driver")
        return any(
            pod["metadata"]["labels"].get("skipstone.dev/owner-kind") == "LoadJob"
            and pod["status"]["phase"] == "Running"
            for pod in drivers
        )

    lake.kube.wait_for("a driver of a job runs", runs, seconds=900, every=0.5)


def finish_work(lake: Lake, released: Released) -> None:
    """Everything completes, a job of the new version too; rows are right and indexes in sync."""
    for kind, name in (("lj", "load-2"), ("lj", "load-3"), ("lj", "load-4"), ("mj", "changes")):
        lake.until_complete(kind, name)
    lake.write("in/5.csv", people(401, 500))
    lake.apply(load("load-5", "in/5.csv"))
    drivers: set[str] = set()

    def ended(job: dict[str, object]) -> bool:
        drivers.update(pods_images(lake.kube, "spark-role=driver").values())
        return has_ended(job)

    job = lake.until("lj", "load-5", ended)
    assert condition(job, "Complete").get("status") == "True", job["status"]
    assert any(released.exact("skipstone-spark").partition("@")[2] in image for image in drivers)
    expected = {row["id"]: (row["name"], row["city"]) for row in people(1, 500)}
    expected |= {7: ("renamed", "Oslo"), 900: ("new", "Bonn")}
    del expected[8]
    rows = lake.rows()
    assert len(rows) == len(expected)
    assert {row["id"]: (row["name"], row["city"]) for row in rows} == expected
    for name in ("by-city", "by-name"):
        lake.until_synced(name, with_job=("lj", "load-5"))


def test_a_registry_that_does_not_answer_is_not_taken_for_an_empty_one() -> None:
    with pytest.raises(ClusterError, match=r"does not tell of the chart 0\.1\.0: check REGISTRY, or log in"):
        has_chart(Named.read("127.0.0.1:1"), "0.1.0")

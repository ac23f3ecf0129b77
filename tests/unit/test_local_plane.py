"""What a run finds on this machine in the place of the image: libraries, variables, authorities."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from threading import Thread
from xml.etree import ElementTree

import pytest
from skipstone_local.runner.environment import CannotMake
from skipstone_local.runner.folders import PodFolder
from skipstone_local.runner.mounts import has_bucket
from skipstone_local.runner.plane import jars
from skipstone_local.runner.plane.dataplane import DataPlane
from skipstone_local.runner.plane.jars import Jar, JarCache, JarsMissing, read_list
from skipstone_local.runner.plane.trust import trust

from tests.cluster.shell import wait_until

IMAGE = Path(__file__).parents[2] / "spark_apps"
CONTENT = b"a library"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JarCache]:
    """An empty cache before a repository that has one library of two; both are on the list."""
    pinned = [Jar("org.a", name, "1", hashlib.sha256(CONTENT).hexdigest()) for name in ("good", "bad")]
    place = tmp_path / "maven" / pinned[0].path
    place.parent.mkdir(parents=True)
    place.write_bytes(CONTENT)
    monkeypatch.setattr(jars, "read_list", lambda purpose: tuple(pinned) if purpose == "both" else (pinned[0],))
    with HTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "maven"))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield JarCache(tmp_path / "my cache", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


def test_the_libraries_are_those_of_the_image() -> None:
    listed = {
        (one.attrib["org"], one.attrib["name"], one.attrib["rev"])
        for one in ElementTree.parse(IMAGE / "image" / "s3a.xml").iter("dependency")
    }
    assert {(jar.group, jar.artifact, jar.version) for jar in read_list("s3a")} == listed
    (iceberg,) = read_list("iceberg")
    dockerfile = (IMAGE / "Dockerfile").read_text()
    assert f"{iceberg.group} {iceberg.artifact} " in dockerfile
    assert re.findall(r"ICEBERG_VERSION=(\S+)", dockerfile) == [iceberg.version]
    (sqlite,) = read_list("sqlite")
    packed = (IMAGE.parent / "tests" / "cluster" / "images" / "demo.xml").read_text()
    assert f'org="{sqlite.group}" name="{sqlite.artifact}" rev="{sqlite.version}"' in packed
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in (iceberg, sqlite, *read_list("s3a")))


def test_a_library_is_fetched_once(cache: JarCache, tmp_path: Path) -> None:
    assert cache.find("one") is None
    (file,) = cache.fetch("one")
    assert file.read_bytes() == CONTENT
    (tmp_path / "maven" / "org" / "a" / "good" / "1" / "good-1.jar").unlink()
    assert cache.fetch("one") == cache.find("one") == (file,)
    assert [path.name for path in cache.folder.iterdir()] == ["good-1.jar"]


def test_what_cannot_be_fetched_is_one_sentence_with_ways_out_that_work(cache: JarCache, tmp_path: Path) -> None:
    with pytest.raises(JarsMissing) as caught:
        cache.fetch("both")
    said = str(caught.value)
    assert said.startswith("bad-1.jar cannot be fetched from http://127.0.0.1:")
    assert said.endswith(
        f"connect this machine to it, name a mirror by SKIPSTONE_MAVEN, or put the file into {cache.folder}"
    )
    (cache.folder / "bad-1.jar").write_bytes(b"by hand")
    assert len(cache.fetch("both")) == 2


def test_a_library_with_another_content_is_refused(cache: JarCache, tmp_path: Path) -> None:
    (tmp_path / "maven" / "org" / "a" / "good" / "1" / "good-1.jar").write_bytes(b"something else")
    with pytest.raises(JarsMissing, match="its SHA-256 is"):
        cache.fetch("one")
    assert cache.find("one") is None


def test_a_fetch_in_the_background_is_waited_for_and_tried_again(cache: JarCache) -> None:
    def failed() -> bool:
        try:
            return cache.await_fetched("both") is not None
        except JarsMissing:
            return True

    wait_until(failed, seconds=120, failure="nothing was told", pause=0.01)
    (cache.folder / "bad-1.jar").write_bytes(b"by hand")
    wait_until(lambda: cache.await_fetched("both") is not None, seconds=120, failure="not fetched", pause=0.01)


def test_a_mirror_and_a_cache_can_be_named() -> None:
    found = JarCache.of_machine({"HOME": "/home/ada", "SKIPSTONE_MAVEN": "https://mirror/maven/"})
    assert found == JarCache(Path("/home/ada/.cache/skipstone/jars"), "https://mirror/maven")
    assert JarCache.of_machine({"XDG_CACHE_HOME": "/c"}).folder == Path("/c/skipstone/jars")


@pytest.mark.parametrize(
    ("warehouse", "bucket"),
    [
        ({"root": "/w", "s3": None, "locations": []}, False),
        ({"root": "", "s3": {"bucket": "b"}}, True),
        ({"root": "/w", "locations": [{"root": "/x", "s3": None}, {"name": "l", "s3": {"bucket": "b"}}]}, True),
    ],
)
def test_a_request_tells_whether_a_bucket_is_read(warehouse: dict[str, object], bucket: bool) -> None:
    assert has_bucket(json.dumps({"warehouse": warehouse})) == bucket
    assert not has_bucket("nothing")


@pytest.fixture
def folder(tmp_path: Path) -> PodFolder:
    path = tmp_path / "a pod"
    path.mkdir()
    return PodFolder(path, "uid")


def test_a_run_gets_what_its_pod_says_and_not_what_a_person_set_for_others(folder: PodFolder) -> None:
    host = {
        "PATH": "/bin",
        "KUBECONFIG": "/k",
        "SPARK_HOME": "/s",
        "SKIPSTONE_X": "1",
        "LANG": "C",
        "HOME": "/home/ada",
    }
    plane = DataPlane.find(sys.executable, host)
    made = plane.environment(folder, folder.path / "tmp", {"HOME": "/h", "POD_NAME": "p", "PATH_X": "1"})
    assert (made["PATH"], made["LANG"], made["HOME"], made["POD_NAME"]) == ("/bin", "C", "/h", "p")
    assert not {"KUBECONFIG", "SKIPSTONE_X"} & set(made)
    assert made["SPARK_HOME"].endswith("/pyspark")
    assert f'"-Djava.io.tmpdir={folder.path}/tmp"' in (Path(made["SPARK_CONF_DIR"]) / "spark-defaults.conf").read_text()
    assert "AWS_EC2_METADATA_DISABLED" not in made
    keys = plane.environment(folder, folder.path, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})
    assert keys["AWS_EC2_METADATA_DISABLED"] == "true"


def test_credentials_of_the_person_are_found_although_a_run_has_another_home(folder: PodFolder, tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").touch()
    made = DataPlane("python", {"HOME": str(tmp_path)}).environment(folder, folder.path, {"HOME": "/h"})
    assert made["AWS_SHARED_CREDENTIALS_FILE"] == str(tmp_path / ".aws" / "credentials")
    assert "AWS_CONFIG_FILE" not in made


@pytest.mark.parametrize(
    "container",
    [
        {"image": "busybox", "command": ["sleep", "1"]}, {"image": "busybox"}, {"image": "i", "args": ["app"]},
        {"image": "i", "args": ["app", "../load"]}, {"image": "i", "args": ["executor"]},
    ],
)  # fmt: skip
def test_other_images_are_not_run(container: dict[str, object]) -> None:
    with pytest.raises(CannotMake, match="is not run here: only runs of Skipstone are, as processes"):
        DataPlane("python", {}).command(container)


@pytest.mark.parametrize(("content", "why"), [(None, "there is no such file"), (b"nothing", "there are none")])
def test_certificates_that_cannot_be_used_are_told(tmp_path: Path, content: bytes | None, why: str) -> None:
    if content is not None:
        (tmp_path / "ca.crt").write_bytes(content)
    with pytest.raises(CannotMake, match=f"the certificates in ca.crt cannot be used: {why}; put PEM"):
        trust(tmp_path / "ca.crt", tmp_path / "trust", {})

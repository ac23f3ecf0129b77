"""Watches and lists of the local server under random writes, and what is left of writes when it is killed."""

from __future__ import annotations

import http.client
import json
import random
import sqlite3
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import pytest
import skipstone
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone_local.places import RootFolder
from skipstone_local.server import opened, serving
from skipstone_local.server.opening import AlreadyServed, read_address
from skipstone_local.store import ForeignLayout, changes

from tests.examples import cases
from tests.kube.localplane import LocalPlane, local_plane
from tests.unit.local_api import CORE, LocalApi, Obj, conf, served

MAPS = f"{CORE}/configmaps"
NAMES = ("a", "b", "c")
SELECTOR = "tier=web"
#: The last object of a test: whoever has seen it has seen all before it.
LAST = "zz"
Step = tuple[str, str]
STEPS = st.lists(
    st.tuples(st.sampled_from(("web", "db", "delete", "note", "watch", "page")), st.sampled_from(NAMES)), max_size=25
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RootFolder]:
    with served(tmp_path_factory.mktemp("served") / "local") as folder:
        yield folder


@dataclass
class Observer:
    """A client that lists once, then only watches, and reconnects whenever it is told to."""

    api: LocalApi
    objects: dict[str, Obj] = field(default_factory=dict)
    version: str = ""

    def list(self) -> None:
        found = self.api.get(MAPS, labelSelector=SELECTOR)
        self.objects = {item["metadata"]["name"]: item for item in found["items"]}
        self.version = found["metadata"]["resourceVersion"]

    def follow(self, until: Callable[[], bool]) -> None:
        """Watch from the last version that was seen."""
        query = urlencode({"watch": "1", "resourceVersion": self.version, "labelSelector": SELECTOR})
        path = f"/api/v1/namespaces/{self.api.namespace}/configmaps?{query}"
        with closing(connect(self.api.root)) as connection:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.api.token}"})
            answer = connection.getresponse()
            while not until():
                self._take(json.loads(answer.readline()))

    def _take(self, event: Obj) -> None:
        obj = event["object"]
        name, known = obj["metadata"]["name"], obj["metadata"]["name"] in self.objects
        assert int(obj["metadata"]["resourceVersion"]) > int(self.version)
        assert (event["type"] == "ADDED") is not known
        self.version = obj["metadata"]["resourceVersion"]
        if event["type"] == "DELETED":
            del self.objects[name]
        else:
            self.objects[name] = obj


def connect(root: RootFolder) -> http.client.HTTPSConnection:
    address = read_address(root.kubeconfig)
    assert address is not None
    context = ssl.create_default_context(cafile=str(root.authority))
    return http.client.HTTPSConnection("127.0.0.1", address.port, context=context, timeout=300)


def write(api: LocalApi, step: str, name: str, number: int) -> None:
    """Create an object, move it between tiers, change it or delete it."""
    if step == "delete":
        api.delete(f"{MAPS}/{name}")
    elif step == "note":
        api.patch(f"{MAPS}/{name}", {"data": {"a": str(number)}})
    else:
        api.post(MAPS, conf(name, labels={"tier": step}))
        if api.code == 409:
            api.patch(f"{MAPS}/{name}", {"metadata": {"labels": {"tier": step}}})


@settings(max_examples=cases(15, 300))
@given(steps=STEPS)
def test_who_reconnects_at_any_moment_ends_with_what_a_list_shows(root: RootFolder, steps: list[Step]) -> None:
    with closing(LocalApi(root)) as api:
        api.post(MAPS, conf("a", labels={"tier": "web"}))
        observers, pages = [Observer(api)], []
        observers[0].list()
        for number, (step, name) in enumerate(steps):
            if step == "watch":
                observers.append(Observer(api))
                observers[-1].list()
            elif step == "page":
                pages.append((api.get(MAPS), api.get(MAPS, limit="1")))
            else:
                write(api, step, name, number)
        middle = api.post(MAPS, conf("middle", labels={"tier": "web"}))["metadata"]["resourceVersion"]
        for observer in observers:
            observer.follow(lambda observer=observer: int(observer.version) >= int(middle))
        write(api, "delete", "a", 0)
        api.post(MAPS, conf(LAST, labels={"tier": "web"}))
        expected = {item["metadata"]["name"]: item for item in api.get(MAPS, labelSelector=SELECTOR)["items"]}
        for observer in observers:
            observer.follow(lambda observer=observer: LAST in observer.objects)
            assert observer.objects == expected
        for whole, first in pages:
            assert list(read_pages(api, first)) == whole["items"]


def read_pages(api: LocalApi, page: Obj) -> Iterator[Obj]:
    """The items of a list whose first page was read long ago."""
    while True:
        yield from page["items"]
        if "continue" not in page["metadata"]:
            return
        page = api.get(MAPS, limit="1", **{"continue": page["metadata"]["continue"]})


def test_who_comes_too_late_is_told_to_list_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "KEPT", 4)
    monkeypatch.setattr(changes, "SLACK", 8)
    with served(tmp_path / "local") as root, closing(LocalApi(root)) as api:
        first = api.post(MAPS, conf("a"))["metadata"]["resourceVersion"]
        api.post(MAPS, conf("b"))
        page = api.get(MAPS, limit="1")
        for number in range(16):
            api.patch(f"{MAPS}/a", {"data": {"a": f"after {number}"}})
        expired = api.get(MAPS, limit="1", **{"continue": page["metadata"]["continue"]})
        assert (expired["code"], expired["reason"]) == (410, "Expired")
        for version in (first, "999999"):
            event = json.loads(first_line(api, resourceVersion=version))
            assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def first_line(api: LocalApi, **query: str) -> bytes:
    path = f"/api/v1/namespaces/{api.namespace}/configmaps?{urlencode({'watch': '1', **query})}"
    with closing(connect(api.root)) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {api.token}"})
        return connection.getresponse().readline()


def test_one_object_is_watched_by_its_path(root: RootFolder) -> None:
    with closing(LocalApi(root)) as api:
        for name in NAMES:
            api.post(MAPS, conf(name))
        path = f"/api/v1/namespaces/{api.namespace}/configmaps/b?watch=1&timeoutSeconds=1"
        with closing(connect(root)) as connection:
            connection.request("GET", path, headers={"Authorization": f"Bearer {api.token}"})
            events = [json.loads(line) for line in connection.getresponse()]
        assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("ADDED", "b")]


def test_signs_of_life_and_the_end_of_a_watch(root: RootFolder) -> None:
    with closing(LocalApi(root)) as api:
        api.post(MAPS, conf("a"))
        query = urlencode({
            "watch": "1", "timeoutSeconds": "1", "allowWatchBookmarks": "true", "sendInitialEvents": "true",
        })  # fmt: skip
        path = f"/api/v1/namespaces/{api.namespace}/configmaps?{query}"
        with closing(connect(root)) as connection:
            connection.request("GET", path, headers={"Authorization": f"Bearer {api.token}"})
            events = [json.loads(line) for line in connection.getresponse()]
        assert [event["type"] for event in events] == ["ADDED", "BOOKMARK", "BOOKMARK"]
        marks = [event["object"]["metadata"].get("annotations") for event in events[1:]]
        assert marks == [{"k8s.io/initial-events-end": "true"}, None]


@dataclass
class Writer:
    """Writes one object again and again until the server is gone; knows what was acknowledged."""

    plane: LocalPlane
    name: str
    told: threading.Semaphore
    acknowledged: list[Obj] = field(default_factory=list)
    sent: int = 0

    def run(self) -> None:
        try:
            with closing(LocalApi(self.plane.root, namespace="w")) as api:
                while True:
                    self.sent += 1
                    self._write(api)
        except (OSError, http.client.HTTPException):
            return

    def _write(self, api: LocalApi) -> None:
        body = conf(self.name, {"a": str(self.sent)})
        found = api.post(MAPS, body) if not self.acknowledged else api.patch(f"{MAPS}/{self.name}", body)
        if api.code in (200, 201):
            self.acknowledged.append(found)
            self.told.release()


def test_what_was_acknowledged_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    with local_plane(tmp_path) as plane:
        with closing(LocalApi(plane.root, namespace="w")) as api:
            api.get(MAPS)
        newest = 0
        for life in range(cases(2, 40)):
            told = threading.Semaphore(0)
            writers = [Writer(plane, f"{life}-{number}", told) for number in range(3)]
            threads = [threading.Thread(target=writer.run) for writer in writers]
            for thread in threads:
                thread.start()
            for _ in range(random.Random(life).randrange(1, 60)):
                told.acquire()
            token = plane.token
            plane.kill()
            for thread in threads:
                thread.join()
            plane.start()
            assert plane.token == token
            newest = judge(plane, writers, newest)


def judge(plane: LocalPlane, writers: list[Writer], newest: int) -> int:
    """Compare what is there with what was acknowledged; the version of the list."""
    with closing(LocalApi(plane.root, namespace="w")) as api:
        for writer in writers:
            found = api.get(f"{MAPS}/{writer.name}")
            if writer.acknowledged:
                last = writer.acknowledged[-1]
                assert found["metadata"]["uid"] == last["metadata"]["uid"]
                assert int(found["data"]["a"]) in (int(last["data"]["a"]), writer.sent)
        version = int(api.get(MAPS)["metadata"]["resourceVersion"])
        assert version > newest
        told = [json.loads(line)["object"] for line in watched(api, newest, version)] if newest else []
        versions = [int(obj["metadata"]["resourceVersion"]) for obj in told]
        assert versions == sorted(set(versions))
    return version


def watched(api: LocalApi, since: int, until: int) -> Iterator[bytes]:
    """The events of a watch up to a version that it reaches."""
    path = f"/api/v1/namespaces/w/configmaps?{urlencode({'watch': '1', 'resourceVersion': since, 'timeoutSeconds': 1})}"
    with closing(connect(api.root)) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {api.token}"})
        yield from connection.getresponse()


def test_one_server_at_a_time_serves_a_folder_and_others_find_it(tmp_path: Path) -> None:
    with opened(tmp_path / "x") as first:
        with pytest.raises(AlreadyServed), serving(tmp_path / "x"):
            pass
        with opened(tmp_path / "x") as second:
            assert second == first
        modes = {path.name: path.stat().st_mode & 0o777 for path in [first.parent, *first.parent.iterdir()]}
        assert modes.pop("x") == 0o700
        assert set(modes.values()) == {0o600}
    with opened(tmp_path / "x") as third, closing(LocalApi(RootFolder(third.parent))) as api:
        assert api.code == 201


def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "objects.db").write_bytes(b"something else" * 100)
    with pytest.raises(ForeignLayout, match="name another folder, or move this file away"), serving(tmp_path):
        pass
    assert (tmp_path / "objects.db").read_bytes() == b"something else" * 100


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "objects.db")) as other:
        other.execute("CREATE TABLE objects (mine TEXT)")
    before = (tmp_path / "objects.db").read_bytes()
    with pytest.raises(ForeignLayout, match="is a database of another program: name another folder"), serving(tmp_path):
        pass
    assert (tmp_path / "objects.db").read_bytes() == before


def test_a_folder_of_a_later_release_is_left_alone(tmp_path: Path) -> None:
    with serving(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "objects.db")) as later:
        later.execute("PRAGMA user_version = 2")
    before = (tmp_path / "objects.db").read_bytes()
    sentence = "has layout 2, and this release of Skipstone knows up to 1: install the release that wrote it"
    with pytest.raises(ForeignLayout, match=sentence), serving(tmp_path):
        pass
    with pytest.raises(skipstone.LakeError, match=sentence):
        skipstone.open(tmp_path)
    assert (tmp_path / "objects.db").read_bytes() == before

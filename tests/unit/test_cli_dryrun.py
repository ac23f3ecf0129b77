"""``skipstone merge --dry-run`` against servers that stand in for clusters of all sorts."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from skipstone_cli.commands import waiting
from skipstone_cli.kinds import API_VERSION

from tests.unit.cli_stand_in import (
    Reply,
    Request,
    StandIn,
    collection,
    condition,
    job,
    refusal,
    stand_in,
    stored,
    table,
)

JOBS = collection("MergeJob")
SPEC = {"tableRef": {"name": "orders"}, "keys": [{"target": "id", "source": "id"}], "suspend": True}
FOUND = {
    "dryRun": True,
    "pruned": "388/400",
    "files": {"total": 400, "candidate": 12, "touched": 4, "rewritten": 3, "marked": 1},
    "rows": {"source": 1000, "matched": 900, "updated": 800, "deleted": 100, "inserted": 90, "ignored": 0, "copied": 7},
    "bytes": {"candidate": 1_234_567},
    "funnel": [
        {"name": "Partitions", "filesIn": 400, "filesOut": 400, "leftOut": "NotPartitionedByKey"},
        {"name": "KeyRanges", "filesIn": 400, "filesOut": 12, "message": "asked of 3 slices"},
    ],
}
DONE = condition("Complete", "True", "DryRun", "The dry run is over. It was judged on snapshot 7.")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setattr(waiting, "PAUSE", 0.01)
    with stand_in(tmp_path) as found:
        yield found


@dataclass
class Cluster:
    """Keeps one MergeJob, which has the next of these statuses each time that it is looked at."""

    statuses: list[dict[str, Any]]
    made: dict[str, Any] | None = None
    methods: list[str] = field(default_factory=list)
    on_patch: Callable[[], None] = lambda: None

    def install(self, server: StandIn) -> None:
        server.store(table(), stored("MergeSchedule", "hourly", {"mergeTemplate": {"spec": SPEC}}))
        server.answers[JOBS] = self.create

        def answer(request: Request) -> Reply:
            server.requests.append(request)
            if request.path.startswith(f"{JOBS}/"):
                return self.one(request)
            return original(request)

        original = server.reply
        server.reply = answer  # type: ignore[method-assign]

    def create(self, request: Request) -> Reply:
        self.methods.append(request.method)
        made = {**request.body, "status": {"observedGeneration": -1}}
        made["metadata"] = {**made["metadata"], "uid": "u", "namespace": "lake", "generation": 1}
        self.made = made
        assert request.query == {"fieldValidation": "Strict"}
        return Reply(made, 201)

    def one(self, request: Request) -> Reply:
        self.methods.append(request.method)
        if request.method == "DELETE":
            return Reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
        if request.method == "PATCH":
            self.on_patch()
        elif self.statuses:
            self.made = {**(self.made or {}), "status": {"observedGeneration": 1, **self.statuses.pop(0)}}
        return Reply(self.made)


UNDERSTOOD = {"dryRun": True, "conditions": [condition("Progressing", "False", "Suspended", "spec.suspend is true")]}


def test_the_funnel_of_a_schedule(server: StandIn) -> None:
    running = {"dryRun": True, "conditions": [condition("Progressing", "True", "DriverRunning", "matching")]}
    cluster = Cluster([UNDERSTOOD, running, {**FOUND, "conditions": [DONE]}])
    cluster.install(server)
    result = server.run("merge", "--dry-run", "ms/hourly")
    assert result.exit_code == 0, result.stderr
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()[4:7]]
    assert lines == [
        ["Partitions", "left out (NotPartitionedByKey): No candidate file is partitioned by a key column"],
        ["KeyRanges", "12  of 400; asked of 3 slices"],
        ["candidates", "12  1,234,567 bytes"],
    ]
    numbers = {line[2:24].strip(): line[24:].strip() for line in result.stdout.splitlines()}
    assert numbers.items() >= {
        ("all", "400"), ("touched", "4"), ("to be rewritten", "3"), ("to be marked", "1"), ("in the source", "1,000"),
        ("to be updated", "800"), ("to be deleted", "100"), ("to be inserted", "90"), ("to be copied", "7"),
    }  # fmt: skip
    assert result.stdout.splitlines()[:2] == ["Dry run of ms/hourly on tbl/orders", f"  {DONE['message']}"]
    assert "DriverRunning: matching" in result.stderr
    assert cluster.methods == ["POST", "GET", "PATCH", "GET", "GET", "DELETE"]
    made = cluster.made
    assert made is not None
    assert made["spec"] == {**SPEC, "dryRun": True, "suspend": True, "ttlSecondsAfterFinished": 600}
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (
        "MergeSchedule", "hourly", "uid-hourly", False,
    )  # fmt: skip


def manifest(tmp_path: Path, *documents: dict[str, Any]) -> str:
    path = tmp_path / "merge.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def merging(name: str = "feb", **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "MergeJob", "metadata": {"name": name, **metadata}, "spec": SPEC}


def test_a_manifest_is_tried_in_its_namespace_under_another_name(server: StandIn, tmp_path: Path) -> None:
    cluster = Cluster([UNDERSTOOD, {**FOUND, "conditions": [DONE]}])
    cluster.install(server)
    file = manifest(tmp_path, {"kind": "ConfigMap"}, merging("f" * 63, namespace="lake", labels={"a": "b"}))
    result = server.run("-o", "json", "merge", "--dry-run", "-f", file)
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["rows"] == FOUND["rows"]
    assert (told["namespace"], told["funnel"]) == ("lake", FOUND["funnel"])
    made = cluster.made
    assert made is not None
    name = made["metadata"]["name"]
    assert len(name) == 63 and "-dry-run-" in name
    assert made["metadata"]["labels"] == {"skipstone.dev/dry-run": "true"}
    other = server.run("merge", "--dry-run", "-f", file, "-n", "other")
    assert other.exit_code == 2 and "namespace lake, --namespace other" in other.stderr


@pytest.mark.parametrize(
    ("documents", "says"),
    [
        ([], "holds 0 MergeJobs"),
        ([merging(), merging()], "holds 2 MergeJobs"),
        ([merging() | {"apiVersion": "skipstone.dev/v9"}], "write skipstone.dev/v1alpha1"),
        ([merging() | {"spec": {}}], "names no Table"),
    ],
)
def test_a_manifest_that_cannot_be_tried(
    server: StandIn, tmp_path: Path, documents: list[dict[str, Any]], says: str
) -> None:
    result = server.run("merge", "--dry-run", "-f", manifest(tmp_path, *documents))
    assert result.exit_code == 2
    assert says in result.stderr
    assert [one for one in server.requests if one.method != "GET"] == []


@pytest.mark.parametrize(
    "arguments", [("ms/hourly",), ("--dry-run",), ("--dry-run", "ms/hourly", "-f", "x"), ("--dry-run", "mj/feb")]
)
def test_usage(server: StandIn, arguments: tuple[str, ...]) -> None:
    assert server.run("merge", *arguments).exit_code == 2
    assert server.requests == []


def test_an_operator_that_knows_no_dry_run_is_never_told_to_begin(server: StandIn) -> None:
    cluster = Cluster([{"conditions": [condition("Progressing", "False", "Suspended")]}])
    cluster.install(server)
    result = server.run("merge", "--dry-run", "ms/hourly")
    assert (result.exit_code, cluster.methods) == (2, ["POST", "GET", "DELETE"])
    assert "upgrade Skipstone first" in result.stderr


def test_crds_that_know_no_dry_run_take_no_job(server: StandIn) -> None:
    server.store(table(), stored("MergeSchedule", "hourly", {"mergeTemplate": {"spec": SPEC}}))
    said = 'MergeJob in version "v1alpha1" cannot be handled: strict decoding error: unknown field "spec.dryRun"'
    server.answer(JOBS, refusal(400, said), 400)
    result = server.run("merge", "--dry-run", "ms/hourly")
    assert result.exit_code == 2
    assert "the CRDs of this cluster know no dry run" in result.stderr


@pytest.mark.parametrize("failed", ["Failed", "deleted", "late"])
def test_a_dry_run_without_a_result_fails_and_goes(server: StandIn, failed: str) -> None:
    ends = {
        "Failed": {"dryRun": True, "conditions": [condition("Failed", "True", "SourceNotFound", "no file.")]},
        "deleted": UNDERSTOOD,
        "late": UNDERSTOOD,
    }
    cluster = Cluster([UNDERSTOOD, ends[failed]])
    cluster.install(server)
    if failed == "deleted":
        cluster.on_patch = lambda: cluster.made and cluster.made["metadata"].update(deletionTimestamp="now")
    result = server.run("merge", "--dry-run", "ms/hourly", *(("--timeout", "0.05") if failed == "late" else ()))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert cluster.methods[-1] == "DELETE"
    if failed == "Failed":
        assert "the dry run has failed: SourceNotFound: no file; " in result.stderr


def test_a_lost_answer_may_have_been_a_creation(server: StandIn) -> None:
    cluster = Cluster([])
    cluster.install(server)
    server.answers[JOBS] = lambda _: Reply("", 201, length=500)
    result = server.run("merge", "--dry-run", "ms/hourly")
    assert (result.exit_code, cluster.methods) == (3, ["DELETE"])


@pytest.fixture
def interruptible() -> Iterator[None]:
    # A shell has what it runs in the background ignore SIGINT, and so would these tests.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_removes_the_job(server: StandIn) -> None:
    cluster = Cluster([UNDERSTOOD], on_patch=lambda: os.kill(os.getpid(), signal.SIGINT))
    cluster.install(server)
    result = server.run("merge", "--dry-run", "ms/hourly")
    assert (result.exit_code, cluster.methods[-1]) == (130, "DELETE")


class TestOptionsBeforeTheCommand:
    def test_they_count(self, server: StandIn) -> None:
        server.store(table(), namespace="other")
        before = server.run("-n", "other", "-o", "json", "why", "tbl/orders")
        after = server.run("why", "tbl/orders", "-n", "other", "-o", "json")
        assert (before.exit_code, before.stdout) == (0, after.stdout)
        assert json.loads(before.stdout)["objectKind"] == "Table"

    def test_those_after_it_win(self, server: StandIn) -> None:
        server.store(table(), namespace="other")
        result = server.run("-n", "lake", "-o", "json", "why", "tbl/orders", "-n", "other", "-o", "text")
        assert (result.exit_code, result.stdout[:1] == "{") == (0, False)

    def test_groups_add_up(self, server: StandIn) -> None:
        server.store(table())
        server.run("--as", "eve", "--as-group", "a", "why", "tbl/orders", "--as-group", "b")
        headers = server.requests[0].headers
        assert [value for name, value in headers if name == "Impersonate-Group"] == ["a", "b"]

    def test_output_is_refused_where_there_is_none(self, server: StandIn) -> None:
        result = server.run("-o", "json", "logs", "mj/feb")
        assert (result.exit_code, server.requests) == (2, [])
        assert "'logs' has no --output" in result.stderr


def test_status_and_why_call_a_dry_run_by_its_name(server: StandIn) -> None:
    tried = job("MergeJob", "feb-dry-run-1", DONE, **FOUND)
    tried["spec"]["dryRun"] = True
    server.store(table(), tried)
    assert "mj/feb-dry-run-1  Complete  dry run" in server.run("status").stdout
    why = server.run("why", "mj/feb-dry-run-1")
    assert (why.exit_code, "nothing was written" in why.stdout) == (0, True)

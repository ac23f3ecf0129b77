"""Kept drivers as processes of this machine: what a run in one gets, how it ends, and what it leaves behind."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from skipstone_core.contract.keeping import FILES_VARIABLE, READY_REPORT, WAREHOUSE_VARIABLE, scheduler_name
from skipstone_core.ids import REPORT_ANNOTATION, WAREHOUSE_UID_LABEL

from tests.unit.kept.api import NAMESPACE, Pod, PodServer

ROOT = Path(__file__).parents[2]
NAME, UID = "kept-0", "5b0c4a7e-1111-4222-8333-444455556666"
WAREHOUSE_UID = "9f8e7d6c-1111-4222-8333-444455556666"
OWNED = [{"kind": "Warehouse", "name": "lake", "uid": WAREHOUSE_UID}]


@dataclass
class Bed:
    """A kept driver and its API server."""

    server: PodServer
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def shared(self) -> Path:
        """What all runs of the pod may write to."""
        return self.folder / "scratch"

    def start(self) -> None:
        """Start the driver and wait until it takes runs."""
        self.server.put({"metadata": {"name": NAME, "uid": UID, "ownerReferences": OWNED}, "spec": {}})
        environment = {
            **os.environ,
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.server.server_port),
            "SKIPSTONE_API_SCHEME": "http",
            "POD_NAMESPACE": NAMESPACE,
            "POD_NAME": NAME,
            "POD_UID": UID,
            WAREHOUSE_VARIABLE: WAREHOUSE_UID,
            "OPENBLAS_NUM_THREADS": "1",
            **self.settings,
        }
        arguments = [sys.executable, "-m", "tests.unit.kept.driver", str(self.folder), str(self.folder / "keys")]
        self.log = (self.folder / "log").open("wb")
        self.process = subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=self.log, stderr=self.log)
        self.server.until(lambda: self.report_of(NAME) == READY_REPORT, "the mark of a driver that is ready")

    def stop(self) -> int:
        """Tell the driver to stop; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(300)

    def assign(self, name: str, app: str, *, deadline: int | None = None, **variables: str) -> Pod:
        """A pod whose scheduler is the driver."""
        own = {"TELL": str(self.folder / name), "SHARED": str(self.shared), **variables}
        files = {"request.json": '{"of": "$(POD_NAME)"}'}
        env: list[dict[str, Any]] = [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "AWS_SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
            {"name": "CONF", "value": "--file /etc/skipstone/spark.properties of $(POD_NAME)"},
            *({"name": key, "value": value} for key, value in own.items()),
            {"name": FILES_VARIABLE, "value": json.dumps(files)},
        ]
        container = {"name": "spark-kubernetes-driver", "image": "image", "args": ["app", app], "env": env}
        spec: dict[str, Any] = {"schedulerName": scheduler_name(UID), "containers": [container]}
        spec |= {"terminationGracePeriodSeconds": 1}
        if deadline is not None:
            spec["activeDeadlineSeconds"] = deadline
        metadata = {"name": f"{name}-driver", "labels": {WAREHOUSE_UID_LABEL: WAREHOUSE_UID}}
        return self.server.put({"metadata": metadata, "spec": spec})

    def wait(self, name: str) -> tuple[str, dict[str, Any]]:
        """The phase of a pod that has ended, and the end of its container."""
        self.server.until(lambda: self.phase(name) in ("Succeeded", "Failed"), f"the end of {name}")
        status = self.server.pods[f"{name}-driver"]["status"]
        return status["phase"], status["containerStatuses"][0]["state"]["terminated"]

    def phase(self, name: str) -> str:
        return str((self.server.pods[f"{name}-driver"].get("status") or {}).get("phase", ""))

    def report_of(self, pod: str) -> str:
        return str((self.server.pods[pod]["metadata"].get("annotations") or {}).get(REPORT_ANNOTATION, ""))

    def told(self, name: str) -> dict[str, Any]:
        """What the program that shows itself has told."""
        read: dict[str, Any] = json.loads((self.folder / name).read_text())
        return read


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with PodServer() as server:
        for folder in ("keys", "scratch"):
            (tmp_path / folder).mkdir()
        made = Bed(server, tmp_path)
        yield made
        if made.process is not None:
            made.process.kill()
            made.process.wait()
            made.log.close()
        server.shutdown()


def test_a_run_gets_its_own_request_environment_and_folder_and_its_end_is_written_as_a_node_does(bed: Bed) -> None:
    bed.start()
    (bed.folder / "keys" / "AWS_SECRET").write_text("first")
    bed.assign("one", "show", ONLY_ONE="1")
    assert bed.wait("one")[0] == "Succeeded"
    (bed.folder / "keys" / "AWS_SECRET").write_text("second")
    bed.assign("two", "show", CODE="3")
    phase, end = bed.wait("two")
    assert (phase, end["exitCode"], end["message"], end["reason"]) == ("Failed", 3, '{"short": "report"}', "Error")
    assert bed.report_of("two-driver") == '{"whole": "report"}'
    first, second = bed.told("one"), bed.told("two")
    assert [each["environment"]["AWS_SECRET"] for each in (first, second)] == ["first", "second"]
    assert [each["environment"]["POD_NAME"] for each in (first, second)] == ["one-driver", "two-driver"]
    assert "ONLY_ONE" not in second["environment"]
    assert FILES_VARIABLE not in second["environment"]
    assert second["request"] == '{"of": "$(POD_NAME)"}'
    assert first["folder"] != second["folder"] == second["environment"]["TMPDIR"] == second["environment"]["HOME"]
    conf = Path(second["environment"]["SKIPSTONE_REQUEST"]).parent
    assert second["environment"]["CONF"] == f"--file {conf}/spark.properties of two-driver"
    assert second["parent"] == bed.process.pid if bed.process else False
    assert (second["files"][:3], len(second["files"]), second["threads"]) == (["0", "1", "2"], 4, 1)
    assert second["handlers"] == 0
    assert b"[one] shown" in (bed.folder / "log").read_bytes()
    assert bed.stop() == 0


def test_a_run_that_crashes_or_raises_ends_alone_and_the_next_one_runs(bed: Bed) -> None:
    bed.start()
    bed.assign("crash", "misbehave", DO="crash")
    bed.assign("raise", "misbehave", DO="raise")
    bed.assign("good", "show")
    phase, end = bed.wait("crash")
    assert (phase, end["exitCode"], end["message"]) == ("Failed", 137, "the last words\n")
    phase, end = bed.wait("raise")
    assert (phase, end["exitCode"]) == ("Failed", 1)
    assert end["message"].endswith("RuntimeError: nothing goes\n")
    assert bed.wait("good")[0] == "Succeeded"


def test_what_a_run_leaves_behind_is_gone_before_the_next_one_begins(bed: Bed) -> None:
    (bed.shared / "of-the-pod").write_text("stays")
    bed.start()
    assert bed.process is not None
    bed.assign("first", "show")
    bed.wait("first")
    before = memory_of(bed.process.pid)
    for number in range(3):
        bed.assign(f"litter-{number}", "misbehave", DO="litter")
        assert bed.wait(f"litter-{number}")[0] == "Succeeded"
    bed.assign("next", "show")
    bed.wait("next")
    assert bed.told("next")["left"] == ["of-the-pod"]
    assert memory_of(bed.process.pid) < before + (20 << 20)
    # Its watch is the only process that is left.
    assert len(children_of(bed.process.pid)) == 1
    assert not list((bed.folder / "runs").iterdir())


def memory_of(process: int) -> int:
    """Bytes of a process that are in memory."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def children_of(process: int) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


@pytest.mark.parametrize("wish", ["sleep", "stubborn"])
def test_a_run_whose_pod_is_deleted_is_ended_and_the_next_one_runs(bed: Bed, wish: str) -> None:
    bed.start()
    bed.assign("doomed", "misbehave", DO=wish)
    bed.server.until(lambda: bed.report_of("doomed-driver") == '{"running": 1}', "progress")
    assert bed.phase("doomed") == "Running"
    bed.assign("next", "show")
    assert bed.phase("next") == ""
    bed.server.remove("doomed-driver")
    assert bed.wait("next")[0] == "Succeeded"


def test_a_run_is_ended_at_its_deadline(bed: Bed) -> None:
    bed.start()
    bed.assign("slow", "misbehave", DO="sleep", deadline=1)
    phase, end = bed.wait("slow")
    assert (phase, end["exitCode"]) == ("Failed", 143)
    assert bed.server.pods["slow-driver"]["status"]["reason"] == "DeadlineExceeded"


def test_a_run_dies_with_its_driver(bed: Bed) -> None:
    bed.start()
    assert bed.process is not None
    bed.assign("orphan", "misbehave", DO="sleep")
    bed.server.until(lambda: bed.report_of("orphan-driver") == '{"running": 1}', "progress")
    (child,) = [pid for pid in children_of(bed.process.pid) if not is_watch(bed, pid)]
    ended = os.pidfd_open(int(child))
    bed.process.kill()
    assert select.select([ended], [], [], 300)[0]
    os.close(ended)


def is_watch(bed: Bed, pid: str) -> bool:
    """The watch has no session of its own."""
    return os.getsid(int(pid)) != int(pid)


def test_a_stopped_driver_lets_its_run_end_and_takes_no_other(bed: Bed) -> None:
    bed.start()
    assert bed.process is not None
    bed.assign("last", "misbehave", DO="sleep", deadline=2)
    bed.server.until(lambda: bed.report_of("last-driver") == '{"running": 1}', "progress")
    bed.assign("late", "show")
    assert bed.stop() == 0
    assert bed.wait("last")[0] == "Failed"
    assert bed.phase("late") == ""


def test_a_driver_ends_when_it_has_been_idle_for_its_time(bed: Bed) -> None:
    bed.settings = {"SKIPSTONE_IDLE_SECONDS": "0.2"}
    bed.start()
    assert bed.process is not None
    assert bed.process.wait(300) == 0


def test_a_driver_ends_when_the_authorities_that_it_trusts_change(bed: Bed) -> None:
    bundle = bed.folder / "ca.crt"
    bundle.write_text("old")
    bed.settings = {"SKIPSTONE_CA_BUNDLE": str(bundle)}
    bed.start()
    assert bed.process is not None
    bundle.write_text("new")
    assert bed.process.wait(300) == 0


def test_a_driver_says_that_it_is_ready_until_the_api_server_takes_it(bed: Bed) -> None:
    bed.server.refuse = [403]
    bed.start()
    bed.assign("one", "show")
    assert bed.wait("one")[0] == "Succeeded"


def test_statuses_are_written_until_the_api_server_takes_them(bed: Bed) -> None:
    bed.start()
    bed.server.refuse = [500, 429]
    bed.assign("patient", "show")
    assert bed.wait("patient")[0] == "Succeeded"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"args": ["bash"]}, "do not name a program"),
        ({"env": [{"name": FILES_VARIABLE, "value": '{"../x": ""}'}]}, "whose name is a path"),
        ({"env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}, "no credential for"),
    ],
)
def test_a_pod_that_cannot_be_run_here_is_lost_and_nothing_is_begun(bed: Bed, change: dict[str, Any], why: str) -> None:
    bed.start()
    pod = bed.assign("unfit", "show", TELL=str(bed.folder / "never"))
    del bed.server.pods["unfit-driver"]
    container = {**pod["spec"]["containers"][0], **change}
    metadata = {"name": "other-driver", "labels": pod["metadata"]["labels"]}
    bed.server.put({"metadata": metadata, "spec": {**pod["spec"], "containers": [container]}})
    bed.server.until(lambda: bed.phase("other") == "Failed", "the refusal")
    status = bed.server.pods["other-driver"]["status"]
    assert why in status["message"]
    assert status["reason"] == "KeptDriverUnfit"
    assert "containerStatuses" not in status


def test_a_run_that_the_operator_has_ended_stops_and_stays_as_it_is(bed: Bed) -> None:
    bed.start()
    running = bed.assign("one", "misbehave", DO="sleep")
    bed.server.until(lambda: bed.phase("one") == "Running", "a run that goes on")
    lost = {"phase": "Failed", "reason": "KeptDriverLost"}
    bed.server.put({**running, "status": {**bed.server.pods["one-driver"]["status"], **lost}})
    bed.assign("two", "show")
    assert bed.wait("two")[0] == "Succeeded"
    assert bed.server.pods["one-driver"]["status"]["reason"] == "KeptDriverLost"


def test_credentials_are_those_of_the_secret_byte_by_byte(bed: Bed) -> None:
    bed.start()
    (bed.folder / "keys" / "AWS_SECRET").write_bytes(b"first\r\nsecond")
    bed.assign("one", "show")
    assert bed.wait("one")[0] == "Succeeded"
    assert bed.told("one")["environment"]["AWS_SECRET"] == "first\r\nsecond"


def test_no_run_begins_after_the_authorities_have_changed(bed: Bed) -> None:
    bundle = bed.folder / "authorities.pem"
    bundle.write_text("old")
    bed.settings = {"SKIPSTONE_CA_BUNDLE": str(bundle)}
    bed.start()
    bed.assign("one", "misbehave", DO="sleep")
    bed.server.until(lambda: bed.phase("one") == "Running", "a run that goes on")
    bed.assign("two", "show")
    bundle.write_text("new")
    bed.server.remove("one-driver")
    assert bed.process is not None
    assert bed.process.wait(300) == 0
    assert bed.phase("two") == ""


LOST = {"phase": "Failed", "reason": "KeptDriverLost"}
MEANWHILE = {
    "ended": lambda server, pod: server.put({**pod, "status": LOST}),
    "deleted": lambda server, pod: server.remove(pod["metadata"]["name"]),
    "created again": lambda server, pod: server.put({"metadata": {"name": pod["metadata"]["name"]}, "spec": {}}),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_a_run_that_others_took_from_a_driver_meanwhile_is_not_begun(bed: Bed, what: str) -> None:
    bed.start()
    taken: list[Pod] = []
    bed.server.meanwhile = lambda: MEANWHILE[what](bed.server, taken[0])
    with bed.server.changed:  # nobody hears of the pod before it is known here
        taken.append(bed.assign("taken", "show"))
    bed.assign("next", "show")
    assert bed.wait("next")[0] == "Succeeded"
    assert not (bed.folder / "taken").exists()
    status = bed.server.pods.get("taken-driver", {}).get("status", {})
    assert status == (LOST if what == "ended" else {})


def test_a_run_whose_pod_others_changed_meanwhile_begins_all_the_same(bed: Bed) -> None:
    bed.start()
    assigned: list[Pod] = []
    labels = {WAREHOUSE_UID_LABEL: WAREHOUSE_UID, "team": "blue"}
    bed.server.meanwhile = lambda: bed.server.put(
        {**assigned[0], "metadata": {**assigned[0]["metadata"], "labels": labels}}
    )
    with bed.server.changed:
        assigned.append(bed.assign("one", "show"))
    assert bed.wait("one")[0] == "Succeeded"
    assert bed.server.pods["one-driver"]["metadata"]["labels"] == labels


def test_an_end_that_others_wrote_meanwhile_stays(bed: Bed) -> None:
    bed.start()
    bed.assign("one", "misbehave", DO="sleep", deadline=1)
    bed.server.until(lambda: bed.phase("one") == "Running", "a run that goes on")
    bed.server.meanwhile = lambda: bed.server.put({**bed.server.pods["one-driver"], "status": LOST})
    bed.assign("next", "show")
    assert bed.wait("next")[0] == "Succeeded"
    assert bed.server.pods["one-driver"]["status"] == LOST


def test_a_status_whose_answer_got_lost_is_written_once(bed: Bed) -> None:
    bed.start()
    bed.server.lost = 2
    bed.assign("one", "show")
    bed.assign("two", "show")
    assert [bed.wait(name)[0] for name in ("one", "two")] == ["Succeeded", "Succeeded"]
    assert bed.server.lost == 0


def test_a_run_of_another_warehouse_is_lost_and_not_begun(bed: Bed) -> None:
    bed.start()
    pod = bed.assign("stray", "show")
    bed.server.remove("stray-driver")
    labels = {WAREHOUSE_UID_LABEL: "00000000-0000-4000-8000-000000000000"}
    bed.server.put({"metadata": {"name": "other-driver", "labels": labels}, "spec": pod["spec"]})
    bed.server.until(lambda: bed.phase("other") == "Failed", "the refusal")
    assert "and this kept driver that with" in bed.server.pods["other-driver"]["status"]["message"]


def test_a_run_whose_pod_is_deleted_ends_although_the_watch_hangs(bed: Bed) -> None:
    bed.settings = {"LOOK_SECONDS": "0.2"}
    bed.start()
    assert bed.process is not None
    bed.assign("doomed", "misbehave", DO="sleep")
    bed.server.until(lambda: bed.report_of("doomed-driver") == '{"running": 1}', "progress")
    (child,) = [pid for pid in children_of(bed.process.pid) if not is_watch(bed, pid)]
    ended = os.pidfd_open(int(child))
    bed.server.mute = True
    bed.server.remove("doomed-driver")
    assert select.select([ended], [], [], 300)[0]
    os.close(ended)


def test_a_watch_goes_on_where_it_ended_without_a_list(bed: Bed) -> None:
    bed.start()
    bed.assign("one", "show")
    assert bed.wait("one")[0] == "Succeeded"
    bed.server.end_watches()
    bed.assign("two", "show")
    assert bed.wait("two")[0] == "Succeeded"
    assert bed.server.lists == 1


def test_a_driver_ends_when_its_warehouse_does_not_own_it_any_more(bed: Bed) -> None:
    bed.start()
    assert bed.process is not None
    bed.server.put({"metadata": {"name": NAME, "uid": UID, "ownerReferences": []}, "spec": {}})
    bed.server.end_watches()
    assert bed.process.wait(300) == 0


def test_a_driver_ends_when_files_of_a_run_cannot_be_removed(bed: Bed) -> None:
    bed.start()
    assert bed.process is not None
    bed.assign("deep", "misbehave", DO="bury")
    bed.assign("next", "show")
    assert bed.process.wait(300) == 0
    subprocess.run(["rm", "-rf", str(bed.shared)], check=True)
    assert (bed.wait("deep")[0], bed.phase("next")) == ("Succeeded", "")


def test_runs_import_nothing_that_their_driver_has_not_imported_once(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.unit.kept.imports", str(tmp_path)]
    subprocess.run([*program, "prepare"], cwd=ROOT, check=True)
    assert subprocess.run(program, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split() == []

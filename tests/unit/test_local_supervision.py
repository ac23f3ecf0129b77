"""A pod's process and its supervisor: the end is written down whatever happens, and nothing lives on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from skipstone_local.runner.folders import PodFolder, Stage
from skipstone_local.runner.supervise import POD_VARIABLE, Order, find_marked, start

from tests.cluster.shell import wait_until

UID = "6f1c"
PATIENCE = 120.0


@pytest.fixture
def folder(tmp_path: Path) -> PodFolder:
    path = tmp_path / "a pod" / UID
    path.mkdir(parents=True)
    return PodFolder(path, str(path))


def order(folder: PodFolder, script: str, *, deadline: float | None = None, grace: float = 60.0) -> Order:
    environment = {POD_VARIABLE: folder.uid, "PATH": os.environ["PATH"]}
    return Order(
        command=["sh", "-c", script], environment=environment, directory="/", deadline=deadline, grace=grace
    )  # fmt: skip


def reach(folder: PodFolder, stage: Stage) -> None:
    wait_until(
        lambda: folder.find_stage() is stage,
        seconds=PATIENCE,
        failure=f"the process is {folder.find_stage()}",
        pause=0.01,
    )


def run(folder: PodFolder) -> None:
    """Wait until the process runs, and has written to its log."""
    wait_until(
        lambda: folder.log.exists() and folder.log.stat().st_size > 0, seconds=PATIENCE, failure="no log", pause=0.01
    )
    wait_until(lambda: bool(folder.read_process()), seconds=PATIENCE, failure="no process", pause=0.01)


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143)])
def test_the_exit_code_is_that_of_a_shell(folder: PodFolder, script: str, code: int) -> None:
    supervisor = folder.start(order(folder, script))
    reach(folder, Stage.ENDED)
    end = folder.read_end()
    assert (end["exitCode"], end["deadlineExceeded"]) == (code, False)
    assert end["finishedAt"] >= folder.read_process()["startedAt"]
    assert supervisor.wait(PATIENCE) == 0


def test_a_program_that_is_not_there_is_told_in_the_log(folder: PodFolder) -> None:
    folder.start(
        Order(command=["/no/program"], environment={POD_VARIABLE: UID}, directory="/", deadline=None, grace=1.0)
    ).wait(PATIENCE)
    assert folder.read_end()["exitCode"] == 128
    assert "cannot be started" in folder.read_message(128, "FallbackToLogsOnError")


def test_a_message_comes_from_the_file_else_from_the_log_of_a_failure(folder: PodFolder) -> None:
    folder.start(order(folder, "echo from the log; exit 1")).wait(PATIENCE)
    assert folder.read_message(1, "FallbackToLogsOnError") == "from the log\n"
    assert folder.read_message(0, "FallbackToLogsOnError") == ""
    assert folder.read_message(1, "File") == ""
    folder.termination.write_text("from the file")
    assert folder.read_message(1, "FallbackToLogsOnError") == "from the file"


def test_who_is_asked_to_end_gets_its_grace(folder: PodFolder) -> None:
    supervisor = folder.start(order(folder, "trap 'echo asked; exit 7' TERM; echo ready; while :; do sleep 0.05; done"))
    run(folder)
    assert folder.stop(PATIENCE)
    supervisor.wait(PATIENCE)
    assert folder.read_end()["exitCode"] == 7


def test_who_does_not_end_is_killed_and_all_that_it_started(folder: PodFolder) -> None:
    script = "trap '' TERM; (setsid sleep 1000 &) ; sleep 1000 & echo ready; while :; do sleep 1; done"
    supervisor = folder.start(order(folder, script))
    run(folder)
    assert find_marked(folder.uid)
    folder.stop(0.1)
    supervisor.wait(PATIENCE)
    assert folder.read_end()["exitCode"] == 137
    assert find_marked(folder.uid) == []


def test_who_is_asked_again_gets_less_time(folder: PodFolder) -> None:
    supervisor = folder.start(order(folder, "trap '' TERM; echo ready; while :; do sleep 0.1; done"))
    run(folder)
    folder.stop(PATIENCE)
    folder.stop(0)
    supervisor.wait(PATIENCE)
    assert folder.read_end()["exitCode"] == 137


def test_a_deadline_ends_the_process(folder: PodFolder) -> None:
    folder.start(order(folder, "sleep 1000", deadline=time.time())).wait(PATIENCE)
    assert folder.read_end() | {"finishedAt": ""} == {"exitCode": 143, "finishedAt": "", "deadlineExceeded": True}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the worker of the test has threads
def test_a_request_to_end_that_comes_before_the_program_is_not_lost(
    folder: PodFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_session = os.setsid

    def asked_at_once() -> None:
        begin_session()
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(os, "setsid", asked_at_once)
    handler = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        _, status = os.waitpid(start(order(folder, "exit 0"), folder.path / "log"), 0)
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM


def test_a_process_that_cannot_be_forked_leaves_signals_and_files_as_they_were(
    folder: PodFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise BlockingIOError("too many processes")

    monkeypatch.setattr(os, "fork", refuse)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ()), len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(BlockingIOError):
        start(order(folder, "exit 0"), folder.path / "log")
    assert (signal.pthread_sigmask(signal.SIG_BLOCK, ()), len([*Path("/proc/self/fd").iterdir()])) == before


def test_a_process_whose_supervisor_is_killed_is_lost_and_leaves_nothing(folder: PodFolder) -> None:
    supervisor = folder.start(order(folder, "(setsid sleep 1000 &) ; echo ready; sleep 1000"))
    run(folder)
    os.kill(folder.read_process()["supervisor"], signal.SIGKILL)
    supervisor.wait(PATIENCE)
    reach(folder, Stage.LOST)
    folder.bury()
    assert find_marked(folder.uid) == []
    assert (folder.find_stage(), folder.read_end()["exitCode"]) == (Stage.ENDED, 137)


def test_of_two_supervisors_one_starts_the_process(folder: PodFolder) -> None:
    both = [folder.start(order(folder, "echo started")) for _ in range(2)]
    assert [each.wait(PATIENCE) for each in both] == [0, 0]
    assert folder.log.read_text() == "started\n"
    folder.start(order(folder, "echo again")).wait(PATIENCE)
    assert folder.log.read_text() == "started\n"


def test_after_a_pod_is_given_up_nobody_starts_its_process(folder: PodFolder) -> None:
    assert folder.give_up()
    folder.start(order(folder, "echo started")).wait(PATIENCE)
    assert not folder.log.exists()


def test_an_order_that_is_cut_off_starts_nothing(folder: PodFolder) -> None:
    from skipstone_local.runner import supervise

    program = ["python3", "-I", "-S", supervise.__file__, str(folder.path)]
    cut = subprocess.run(program, input=b'{"command": ["sh"', capture_output=True, check=False, timeout=PATIENCE)
    assert cut.returncode != 0
    assert folder.find_stage() is Stage.NEW

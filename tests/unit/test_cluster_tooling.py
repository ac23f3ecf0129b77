"""The parts of the test cluster that decide something: pins, prerequisites, pids, layers."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest

from tests.cluster import layers, residue, shipped
from tests.cluster.errors import ClusterError
from tests.cluster.layout import SOURCES, StateDir
from tests.cluster.prerequisites import check_path_length, read_go_version, read_version
from tests.cluster.processes import Program, find_pid, is_running, read_log_end, start_program, stop_program
from tests.cluster.shell import at_once, run, run_logged, stage, wait_until
from tests.cluster.toolchain import build_api_server, build_tools, read_pin, read_releases

#: A process that starts a program which is to die with it, and ends. To be given the state folder.
START_AND_END = (
    sys.executable,
    "-c",
    "import sys; from pathlib import Path\n"
    "from tests.cluster.layout import StateDir\n"
    "from tests.cluster.processes import Program, start_program\n"
    "start_program(StateDir(Path(sys.argv[1])), Program('child', ['sleep', '600']), die_with_parent=True)\n",
)


def test_go_versions_compare_as_numbers() -> None:
    assert read_version("go1.9.4") < read_version("go1.24.0") < read_version("go1.26.8")


def test_a_go_mod_without_a_version_says_to_restore_it() -> None:
    with pytest.raises(ClusterError, match="restore the file from git"):
        read_go_version("module x\n")


def test_every_pinned_tool_is_required_by_its_go_mod() -> None:
    assert read_pin(SOURCES / "tools/kubernetes/go.mod", "k8s.io/kubernetes").startswith("v1.")
    assert read_pin(SOURCES / "tools/kubernetes/go.mod", "go.etcd.io/etcd/server/v3").startswith("v3.")
    assert read_pin(SOURCES / "tools/helm/go.mod", "helm.sh/helm/v4").startswith("v4.")
    assert read_pin(SOURCES / "tools/versitygw/go.mod", "github.com/versity/versitygw").startswith("v1.")
    assert read_pin(SOURCES / "tools/kstatus/go.mod", "sigs.k8s.io/cli-utils").startswith("v0.")
    assert read_pin(SOURCES / "tools/argocdhealth/go.mod", "github.com/argoproj/argo-cd/v3").startswith("v3.")


def test_a_pin_that_is_missing_names_the_module() -> None:
    with pytest.raises(ClusterError, match="does not require example/absent"):
        read_pin(SOURCES / "tools/helm/go.mod", "example/absent")


def test_the_clients_are_of_the_pinned_versions_however_they_come() -> None:
    programs = build_tools(["kubectl", "helm"])
    said = json.loads(run([programs["kubectl"], "version", "--client", "--output", "json"]))
    kubectl, kubernetes = read_version(said["clientVersion"]["gitVersion"]), read_version(read_releases()[""])
    assert kubectl[:2] == kubernetes[:2]
    assert kubectl >= kubernetes
    helm = run([programs["helm"], "version", "--template", "{{.Version}}"])
    assert helm
    assert read_pin(SOURCES / "tools/helm/go.mod", "helm.sh/helm/v4").startswith(helm)


def test_a_package_without_the_program_names_the_file_that_pins_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped, "UV", shutil.which("true"))
    requirement, target = SOURCES / "tools/helm/helm.x86_64.txt", tmp_path / "helm"
    with pytest.raises(ClusterError, match=f"the package in {requirement} brings no helm"):
        shipped.unpack_program(requirement, "helm", target, tmp_path / "log")
    assert not target.exists()


def test_works_side_by_side_all_end_before_one_that_failed_is_told() -> None:
    failed, done = threading.Event(), []

    def fail() -> None:
        failed.set()
        raise ClusterError("out of luck")

    def go_on() -> None:
        assert failed.wait(300)
        done.append("second")

    with pytest.raises(ClusterError, match="out of luck"):
        at_once(fail, go_on)
    assert done == ["second"]


def test_a_stage_tells_what_its_programs_took_of_processors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    busy = "import time\nwhile time.process_time() < 1.1: pass"
    with stage("count"):
        run_logged([sys.executable, "-c", busy], tmp_path / "log")
    with stage("rest"):
        run_logged(["true"], tmp_path / "log")
    counted, rested = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"  count \.\.\. [\d.]+ s \(\d+ s of processors\)", counted)
    assert re.fullmatch(r"  rest \.\.\. [\d.]+ s", rested)


def test_a_release_that_is_not_pinned_names_those_that_are() -> None:
    known = ", ".join(release for release in read_releases() if release)
    with pytest.raises(ClusterError, match=f"Kubernetes 1.0 is not pinned .* choose one of {known}"):
        build_api_server("1.0")


def test_a_state_folder_too_long_for_sockets_is_refused() -> None:
    with pytest.raises(ClusterError, match="too long for unix sockets"):
        check_path_length(Path("/" + "x" * 80))


def test_a_failed_command_says_what_it_said() -> None:
    with pytest.raises(ClusterError, match="exit code 3: out of luck"):
        run(["sh", "-c", "echo out of luck >&2; exit 3"])


def test_a_command_that_is_not_there_says_so() -> None:
    with pytest.raises(ClusterError, match="no-such-program is not installed"):
        run(["no-such-program"])


def test_a_failed_long_command_names_its_log_and_last_line(tmp_path: Path) -> None:
    log = tmp_path / "a" / "log"
    with pytest.raises(ClusterError, match=rf"look into {log} \(last line: second\)"):
        run_logged(["sh", "-c", "echo first; echo second; exit 1"], log)


def test_waiting_in_vain_raises_the_given_sentence() -> None:
    with pytest.raises(ClusterError, match="it never came"):
        wait_until(lambda: False, seconds=0, failure="it never came")


def test_a_program_runs_until_it_is_stopped(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    start_program(state, Program("sleeper", ["sleep", "600"]))
    assert is_running(state, "sleeper")
    stop_program(state, "sleeper")
    assert not is_running(state, "sleeper")


def test_a_program_that_ignores_the_first_signal_is_killed(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    start_program(state, Program("stubborn", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 600; done"]))
    wait_until(lambda: read_log_end(state, "stubborn") == "ready", seconds=300, failure="it did not start")
    stop_program(state, "stubborn", grace=0.1)
    assert not is_running(state, "stubborn")


def test_a_stale_pid_file_never_points_at_a_stranger(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    state.run.mkdir()
    (state.run / "etcd.pid").write_text(f"{os.getpid()} 1\n")
    assert find_pid(state, "etcd") is None
    stop_program(state, "etcd")
    assert not (state.run / "etcd.pid").exists()


def test_a_program_dies_with_the_process_that_wants_it_to(tmp_path: Path) -> None:
    subprocess.run([*START_AND_END, str(tmp_path)], cwd=SOURCES.parents[1], check=True)
    wait_until(
        lambda: not is_running(StateDir(tmp_path), "child"), seconds=300, failure="the child outlived its parent"
    )


def test_a_program_ends_when_the_process_that_wants_it_is_gone_before_it_begins(tmp_path: Path) -> None:
    gate, tools = tmp_path / "gate", tmp_path / "tools"
    os.mkfifo(gate)
    tools.mkdir()
    slow = tools / "setpriv"
    slow.write_text(f'#!/bin/sh\nread -r opened < {gate}\nexec {shutil.which("setpriv")} "$@"\n')
    slow.chmod(0o755)
    path = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    subprocess.run([*START_AND_END, str(tmp_path)], cwd=SOURCES.parents[1], env=path, check=True)
    state = StateDir(tmp_path)
    assert is_running(state, "child")
    gate.write_text("open\n")
    wait_until(lambda: not is_running(state, "child"), seconds=300, failure="the child outlived its parent")
    assert "has ended" in read_log_end(state, "child")


def test_only_programs_of_the_same_state_folder_count_as_left_behind(tmp_path: Path) -> None:
    mine, other = StateDir(tmp_path / "mine"), StateDir(tmp_path / "other")
    for state in (mine, other):
        state.root.mkdir()
        start_program(state, Program("etcd", ["bash", "-c", f"exec -a etcd tail -f /dev/null {state.root}/"]))
    wait_until(lambda: residue.find_processes(mine) == [find_pid(mine, "etcd")], seconds=300, failure="not found")
    stop_program(mine, "etcd")
    left = residue.find_processes(mine)
    stop_program(other, "etcd")
    assert left == []


def test_the_enforcer_counts_as_left_behind_though_others_run_python_too(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    for name, module in (("enforcer", residue.ENFORCER), ("stranger", "tests.other")):
        words = f"exec -a python3 tail -f /dev/null {module} {state.kubeconfig}"
        start_program(state, Program(name, ["bash", "-c", words]))
    wait_until(lambda: residue.find_processes(state) == [find_pid(state, "enforcer")], seconds=300, failure="not found")
    for name in ("enforcer", "stranger"):
        stop_program(state, name)
    assert residue.find_processes(state) == []


def test_a_layer_is_read_back_as_the_tar_it_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = _write_storage(tmp_path, {"etc/empty": b"", "etc/hosts": b"localhost\n", "big": b"x" * 3_000_000})
    monkeypatch.setattr(layers, "STORAGE", tmp_path)
    assert layers.open_layer("sha256:feed").read() == original


def test_a_layer_that_is_not_stored_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_storage(tmp_path, {})
    monkeypatch.setattr(layers, "STORAGE", tmp_path)
    with pytest.raises(ClusterError, match="does not hold the layer sha256:beef"):
        layers.open_layer("sha256:beef")


def _write_storage(root: Path, files: dict[str, bytes]) -> bytes:
    """Write one layer as containers/storage keeps it and return its tar."""
    whole, entries = io.BytesIO(), []
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for name, content in files.items():
            start = whole.tell()
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
            written = whole.getvalue()[start:]
            entries.append({"type": 2, "payload": base64.b64encode(written[:512]).decode()})
            entries.append({"type": 1, "name": name, **({"size": len(content)} if content else {})})
            entries.append({"type": 2, "payload": base64.b64encode(written[512 + len(content) :]).decode()})
            path = root / "overlay" / "one" / "diff" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        end = whole.tell()
    entries.append({"type": 2, "payload": base64.b64encode(whole.getvalue()[end:]).decode()})
    (root / "overlay-layers").mkdir()
    (root / "overlay-layers" / "layers.json").write_text(json.dumps([{"id": "one", "diff-digest": "sha256:feed"}]))
    with gzip.open(root / "overlay-layers" / "one.tar-split.gz", "wt") as out:
        out.writelines(json.dumps(entry) + "\n" for entry in entries)
    return whole.getvalue()

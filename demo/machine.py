"""Skipstone on this machine as the demonstration drives it: `skipstone local up`, and the objects of its folder.

What a person would type is printed; what is printed below it is what that command prints.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from skipstone_cli.errors import CliError
from skipstone_cli.kinds import API_VERSION
from skipstone_cli.output.screen import Screen
from skipstone_local.client.objects import Objects, Selection
from skipstone_local.client.opening import open_kubeconfig
from skipstone_local.client.resources import Resource
from skipstone_local.commands.applying import Sources, run_apply
from skipstone_local.commands.getting import GetQuery, run_get
from skipstone_local.places import RootFolder

JsonObject = dict[str, Any]
NAMESPACE = "default"
START_SECONDS = 60.0
STOP_SECONDS = 60.0
LOOK_SECONDS = 0.3
ROOT = Path(__file__).resolve().parents[1]


class DemoError(RuntimeError):
    """A step did not come to its end; the text says which and why."""


@contextmanager
def skipstone_up(folder: RootFolder) -> Iterator[Machine]:
    """Serve ``folder`` by `skipstone local up` inside the block; what it holds stays. Raises DemoError."""
    command = [sys.executable, "-m", "skipstone_cli", "local", "up", "--root", str(folder.path)]
    print(f"$ . {shlex.quote(shown(Path(sys.prefix) / 'bin' / 'activate'))}", flush=True)
    print(f"$ export SKIPSTONE_LOCAL={shlex.quote(shown(folder.path))}\n$ skipstone local up &", flush=True)
    with (folder.path.parent / "up.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        _await_server(process, folder)
        yield Machine(folder, open_kubeconfig(folder.kubeconfig, NAMESPACE, lambda line: print(line, flush=True)))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_SECONDS)


def _await_server(process: subprocess.Popen[bytes], folder: RootFolder) -> None:
    end = time.monotonic() + START_SECONDS
    while not _answers(folder):
        if process.poll() is not None or time.monotonic() > end:
            raise DemoError(f"skipstone local up does not serve: see {folder.path.parent / 'up.log'}")
        time.sleep(LOOK_SECONDS / 3)


def _answers(folder: RootFolder) -> bool:
    if not folder.kubeconfig.exists():
        return False
    try:
        objects = open_kubeconfig(folder.kubeconfig, NAMESPACE, lambda _: None)
        objects.resources.find_kind(API_VERSION, "Table")
    except CliError:
        return False
    return True


def shown(path: Path) -> str:
    """The path as a person in this folder would type it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


@dataclass(frozen=True)
class Machine:
    """The objects of one folder."""

    folder: RootFolder
    objects: Objects

    def apply(self, *manifests: Path) -> None:
        """Apply manifest files, as `skipstone local apply` does. Raises DemoError."""
        print(f"$ skipstone local apply {' '.join(f'-f {shlex.quote(shown(path))}' for path in manifests)}", flush=True)
        if run_apply(self.objects, Screen(), Sources([str(path) for path in manifests])):
            raise DemoError("a manifest is refused")

    def create(self, manifest: JsonObject) -> None:
        """Apply one object without a word."""
        self.objects.apply(manifest)

    def patch(self, kind: str, name: str, change: JsonObject) -> None:
        """Change fields of an object, as kubectl does."""
        words = ["kubectl", f"--kubeconfig={shown(self.folder.kubeconfig)}", "patch", f"{kind}/{name}".lower()]
        print(f"$ {shlex.join([*words, '--type=merge', f'--patch={json.dumps(change)}'])}", flush=True)
        self.objects.patch(self._resource(kind), NAMESPACE, name, change)

    def items(self, kind: str) -> list[JsonObject]:
        """All objects of a kind."""
        objects: list[JsonObject] = self.objects.list_objects(self._resource(kind), Selection(namespace=NAMESPACE))[
            "items"
        ]
        return objects

    def _resource(self, kind: str) -> Resource:
        return self.objects.resources.find_kind(API_VERSION, kind)

    def table(self, kinds: str) -> str:
        """What `skipstone local get` prints."""
        out, err = (Console(file=io.StringIO(), width=240) for _ in range(2))
        run_get(self.objects, Screen(out, err), GetQuery(words=(kinds,), namespace=NAMESPACE))
        return str(out.file.getvalue())  # type: ignore[attr-defined]

    def wait_for(self, what: str, done: Callable[[], bool], seconds: float) -> None:
        """Look until ``done``. Raises DemoError naming ``what`` after ``seconds``."""
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                raise DemoError(f"not reached within {seconds:.0f} s: {what}")
            time.sleep(LOOK_SECONDS)


@dataclass(frozen=True)
class Program:
    """A program of the demonstration that runs in a process of its own; what libraries log goes to ``log``."""

    name: str
    process: subprocess.Popen[str]
    log: Path

    def wait(self) -> None:
        """Print what it says until it has ended. Raises DemoError with the end of its log when it fails."""
        for line in self.process.stdout or ():
            print(line, end="", flush=True)
        if self.process.wait():
            raise DemoError(f"the program {self.name} failed:\n{self.log.read_text(errors='replace')[-4000:]}")


def start_program(name: str, arguments: Sequence[str], log: Path, **environment: str) -> Program:
    """Start a program of the demonstration with further variables."""
    command = [sys.executable, "-m", f"demo.{name}", *arguments]
    variables = {**os.environ, **environment}
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, env=variables, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8"
        )
    return Program(name, process, log)


def remove(folder: RootFolder) -> None:
    """Remove a folder that nothing serves. Raises DemoError for one that is served."""
    with ExitStack() as until:
        if folder.lock.exists():
            lock = until.enter_context(folder.lock.open("r+"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise DemoError(f"{folder.path} is served by 'skipstone local up': stop that process first") from error
        shutil.rmtree(folder.path, ignore_errors=True)

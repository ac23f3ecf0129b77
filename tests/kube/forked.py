"""Operator processes that start at once: forked from a process that has imported the operator.

Importing it takes two seconds of a core, and the tests of this folder start dozens of operators. That
`python -m skipstone_operator` does the same is for `test_runtime_operator` to show.
"""

from __future__ import annotations

import functools
import getpass
import multiprocessing
import os
import sys
from collections.abc import Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["skipstone_operator.__main__", "tests.kube.forked"])


class ForkedOperator:
    """One operator process, with what `subprocess.Popen` has of methods."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        """Start it; what it writes goes to the end of ``log``."""
        log.touch()
        # As a daemon it does not keep a test run from ending.
        self._process: ForkServerProcess = CONTEXT.Process(
            target=_operate, args=(dict(environment), str(log)), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended. Raises TimeoutError."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise TimeoutError(f"the operator {self.pid} did not end in {timeout} s")
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()


def _nameless() -> str:
    raise KeyError("getpwuid(): uid not found: 54321")


def _operate(environment: dict[str, str], log: str) -> None:
    import skipstone_operator.__main__ as program
    from skipstone_operator.runtime.lease import LeaseTiming

    # On a machine with more to do than it can, no operator ends because its Lease was renewed late.
    program.Lease = functools.partial(program.Lease, timing=LeaseTiming(give_up=600.0))
    # As in a container whose user no passwd names.
    getpass.getuser = _nameless
    os.environ.clear()
    os.environ.update(environment)
    with Path(log).open("ab") as out:
        os.dup2(out.fileno(), sys.stdout.fileno())
        os.dup2(out.fileno(), sys.stderr.fileno())
    sys.exit(program.main(os.environ))

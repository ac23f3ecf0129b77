"""Opens the API server for one command: that of a kubeconfig, or the one of a folder of ``skipstone local``.

The package skipstone-local serves such folders, and is found by its entry point: with a cluster, nobody needs it.
"""

from __future__ import annotations

import fcntl
import os
import shlex
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

from skipstone_core.errors import way_to_install

from skipstone_cli.cluster.api import EVERYWHERE, Api
from skipstone_cli.cluster.kubeconfig import Access, load_login
from skipstone_cli.cluster.transport import Transport
from skipstone_cli.errors import CliError
from skipstone_cli.kinds import require_name

#: The folder of the API server that commands use when no option names another one.
LOCAL_VARIABLE = "SKIPSTONE_LOCAL"
#: Of the entry point ``opened``: a folder in, a context that gives the path of a kubeconfig out.
LOCAL_GROUP, OPENED = "skipstone.local", "opened"
#: What there is in a folder that a local API server has served.
OBJECTS = "objects.db"
#: The file that a process which serves the folder holds locked.
LOCK = "lock"


def open_api(access: Access, until: ExitStack, *, everywhere: bool = False, patient: bool = True) -> Api:
    """The API server that the command line, the environment and the kubeconfig name. Raises CliError.

    ``patient``: ask again after a lost connection, and when the server is busy. ``until``: what a local server that
    this process runs lives for.
    """
    root = _local_root(access)
    served = bool(root) and is_served(Path(root))
    if root:
        access = replace(access, kubeconfig=str(serve_root(Path(root), until)), local="")
    login = load_login(access)
    namespace = EVERYWHERE if everywhere else require_name(login.namespace, "a namespace")
    transport = Transport(login, patient=patient)
    until.callback(transport.close)
    api = Api(transport, namespace)
    if root:
        place = "" if root == os.environ.get(LOCAL_VARIABLE) else f" --root {shlex.quote(root)}"
        lister = f"skipstone local get {{kind}} --namespace {{namespace}}{place}"
        return replace(api, lister=lister, starter="" if served else f"skipstone local up{place}")
    return api


def _local_root(access: Access) -> str:
    """The folder of a local API server; empty if one of a kubeconfig is meant."""
    if access.local and (access.kubeconfig or access.context):
        raise CliError("--local names a folder with an API server of its own: leave out --kubeconfig and --context")
    return access.local or ("" if access.kubeconfig or access.context else os.environ.get(LOCAL_VARIABLE, ""))


def is_served(root: Path) -> bool:
    """Return whether a process serves the folder now, and so runs what is asked for."""
    try:
        with (root / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def serve_root(root: Path, until: ExitStack, *, first_time: bool = False) -> Path:
    """The kubeconfig of the server of ``root``, which this process runs if no other one does. Raises CliError.

    ``first_time``: also of a folder that was never served.
    """
    entries = entry_points(group=LOCAL_GROUP, name=OPENED)
    if not entries:
        raise CliError(f"{root} is a folder of 'skipstone local', which is not installed: {way_to_install('local')}")
    if not first_time and not (root / OBJECTS).exists():
        raise CliError(f"{root} holds nothing of Skipstone: run 'skipstone local up --root {root}' first")
    opened = next(iter(entries)).load()
    try:
        return Path(until.enter_context(opened(root)))
    except OSError as error:
        raise CliError(f"{root} cannot be served: {error}") from error

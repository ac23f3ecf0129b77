"""Opens the API server of a root folder for one command, or that of a kubeconfig."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from skipstone_cli.cluster.kubeconfig import Access, load_login
from skipstone_cli.cluster.opening import is_served, serve_root
from skipstone_cli.cluster.transport import Transport
from skipstone_cli.kinds import require_name

from skipstone_local.client.objects import Objects
from skipstone_local.places import RootFolder, find_root


def open_root(root: RootFolder, namespace: str, until: ExitStack, on_warning: Callable[[str], None]) -> Objects:
    """The objects of a root folder, which this process serves until then if no other one does. Raises CliError."""
    served = is_served(root.path)
    objects = open_kubeconfig(serve_root(root.path, until, first_time=True), namespace, on_warning)
    until.callback(objects.transport.close)
    option = "" if root == find_root() else f" --root {shlex.quote(str(root.path))}"
    return replace(objects, has_operator=served, root=option)


def open_kubeconfig(kubeconfig: Path, namespace: str, on_warning: Callable[[str], None]) -> Objects:
    """The objects of the API server that a kubeconfig names. Raises CliError."""
    login = load_login(Access(kubeconfig=str(kubeconfig), namespace=namespace))
    return Objects(Transport(login, on_warning=on_warning), require_name(login.namespace, "a namespace"))

"""The command line of the test cluster: `python3 -m tests.cluster <command>`, as the make targets call it.

Thin: it parses, calls the module that knows, and turns a ClusterError into one line and exit code 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from tests.cluster.controlplane import find_control_plane, start_control_plane
from tests.cluster.errors import ClusterError
from tests.cluster.layout import KUBE
from tests.cluster.shell import stage
from tests.cluster.tools import ALL, CONTROL_PLANE, build_tools

Command = Callable[[argparse.Namespace], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code."""
    chosen = build_parser().parse_args(arguments)
    command: Command = chosen.command
    try:
        command(chosen)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; run the same command again to go on", file=sys.stderr)
        return 130
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; each sub-command carries its function as `command`."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.cluster", description="The project's own local Kubernetes.")
    commands = parser.add_subparsers(required=True, metavar="command")
    simple: list[tuple[str, str, Command]] = [
        ("tools", "build every program", build_every_tool),
        ("kube-up", "start a Kubernetes API without a node", kube_up),
        ("kube-down", "stop it", kube_down),
    ]
    for name, text, function in simple:
        commands.add_parser(name, help=text, description=text).set_defaults(command=function)
    return parser


def build_every_tool(_: argparse.Namespace) -> None:
    build_tools(ALL)


def kube_up(_: argparse.Namespace) -> None:
    build_tools(CONTROL_PLANE)
    with stage("start the Kubernetes API"):
        plane = start_control_plane(KUBE.root, die_with_parent=False)
    print(f"ready: KUBECONFIG={plane.kubeconfig_admin} ({plane.url})")


def kube_down(_: argparse.Namespace) -> None:
    with stage("stop the Kubernetes API"):
        find_control_plane(KUBE.root).stop()


if __name__ == "__main__":
    sys.exit(main())

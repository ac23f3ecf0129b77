"""The command line of the test cluster: `python3 -m tests.cluster <command>`, as the make targets call it.

Thin: it parses, calls the module that knows, and turns a ClusterError into one line and exit code 1.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial

from tests.cluster import residue
from tests.cluster.bills import write_bills
from tests.cluster.context import find_context
from tests.cluster.controlplane import (
    ControlPlane,
    find_control_plane,
    start_control_plane,
    stop_control_plane,
)
from tests.cluster.errors import ClusterError
from tests.cluster.image_build import build_images
from tests.cluster.layout import KUBE, NODE, find_shared_cache
from tests.cluster.node import BRIDGE, reset_node, start_node, start_runtime, stop_node
from tests.cluster.shell import at_once, stage
from tests.cluster.smoke import run_smoke
from tests.cluster.toolchain import (
    ALL,
    FOR_TESTS,
    STORE_AND_CLIENT,
    build_api_server,
    build_tools,
    read_releases,
    split_tools,
)
from tests.cluster.transfer import import_images
from tests.cluster.volumes import create_volume, delete_volume

SHOWN = 5

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
        ("kubectl", "build kubectl alone", build_kubectl),
        ("releases", "build the API server of every pinned release of Kubernetes", build_every_release),
        ("kube-up", "start a Kubernetes API without a node", kube_up),
        ("kube-down", "stop it", kube_down),
        ("down", "stop the cluster and leave nothing running, mounted or configured", down),
        ("reset", "stop the cluster and forget its objects and volumes", reset),
        ("smoke", "run a Spark driver with one executor on the cluster", smoke),
        ("purge", "stop the cluster and remove everything it built, for all checkouts of this user", purge),
        ("check-clean", "fail if a stopped cluster left anything on the machine", check_clean),
    ]
    for name, text, function in simple:
        commands.add_parser(name, help=text, description=text).set_defaults(command=function)
    _add_image_commands(commands)
    _add_volume_commands(commands)
    context = commands.add_parser("context", help="print shell assignments of KUBECONFIG and KUBECTL to use")
    context.add_argument("which", choices=("embedded", "current"), help="the project's own cluster, or yours")
    context.set_defaults(command=print_context)
    return parser


def _add_image_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    with_images: list[tuple[str, str, Command]] = [
        ("images", "build every image and give it to the cluster if that runs", refresh_images),
        ("up", "start the cluster, with its images", up),
    ]
    for name, text, function in with_images:
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--s3", action="store_true", help="also those of an S3 server and a REST catalog")
        command.set_defaults(command=function)


def _add_volume_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    make = commands.add_parser("volume", help="create a PersistentVolume in a folder of this machine")
    make.add_argument("name")
    make.add_argument("--size", default="20Gi", help="what the volume says it holds (default 20Gi)")
    make.add_argument("--empty", action="store_true", help="remove what the folder holds")
    make.set_defaults(command=make_volume)
    drop = commands.add_parser("volume-delete", help="delete a PersistentVolume and its folder")
    drop.add_argument("name")
    drop.set_defaults(command=drop_volume)


def build_every_tool(_: argparse.Namespace) -> None:
    _build_programs((*ALL, *FOR_TESTS))


def build_kubectl(_: argparse.Namespace) -> None:
    build_tools(("kubectl",))


def build_every_release(_: argparse.Namespace) -> None:
    for release in read_releases():
        build_api_server(release)


def refresh_images(chosen: argparse.Namespace) -> None:
    tags = build_images(s3=chosen.s3)
    write_bills(tags)
    if residue.is_runtime_up(NODE):
        import_images(NODE, tags)


def kube_up(_: argparse.Namespace) -> None:
    build_tools(STORE_AND_CLIENT)
    build_api_server("")
    with stage("start the Kubernetes API"):
        plane = start_control_plane(KUBE.root, die_with_parent=False)
    _say_ready(plane)


def kube_down(_: argparse.Namespace) -> None:
    with stage("stop the Kubernetes API"):
        stop_control_plane(KUBE)


def up(chosen: argparse.Namespace) -> None:
    start_runtime(NODE)
    # Images wait for the network and the disk while programs keep the processors busy.
    at_once(lambda: _build_programs(ALL), lambda: refresh_images(chosen))
    _say_ready(start_node(NODE))


def down(_: argparse.Namespace) -> None:
    stop_node(NODE)
    check_clean(_)


def reset(_: argparse.Namespace) -> None:
    down(_)
    reset_node(NODE)


def smoke(_: argparse.Namespace) -> None:
    with stage("run a Spark driver with one executor"):
        said = run_smoke(find_control_plane(NODE.root))
    print(said)


def purge(_: argparse.Namespace) -> None:
    down(_)
    with stage("remove what was built"):
        shutil.rmtree(NODE.root)
        shutil.rmtree(find_shared_cache(), ignore_errors=True)


def check_clean(_: argparse.Namespace) -> None:
    left = residue.list_all(NODE, BRIDGE)
    if left:
        more = f" and {len(left) - SHOWN} more things" if len(left) > SHOWN else ""
        raise ClusterError(f"the cluster left {', '.join(left[:SHOWN])}{more}: run 'make cluster-down'")
    print("nothing of the cluster is left: no process, mount, interface, table, control group or link")


def make_volume(chosen: argparse.Namespace) -> None:
    print(create_volume(find_control_plane(NODE.root), chosen.name, size=chosen.size, empty=chosen.empty))


def drop_volume(chosen: argparse.Namespace) -> None:
    delete_volume(find_control_plane(NODE.root), chosen.name)


def print_context(chosen: argparse.Namespace) -> None:
    print(find_context(chosen.which).render_shell())


def _build_programs(names: Sequence[str]) -> None:
    # What a package brings is downloaded beside what is compiled.
    at_once(*(partial(build_tools, group) for group in split_tools(names)))


def _say_ready(plane: ControlPlane) -> None:
    print(f"ready: export KUBECONFIG={plane.kubeconfig_admin} ({plane.url})")


if __name__ == "__main__":
    sys.exit(main())

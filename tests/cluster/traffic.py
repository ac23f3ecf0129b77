"""What pods of the node send to addresses outside of the cluster, told by the kernel.

Called by the demonstration. Nothing of it leaves the machine while it is watched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.cluster.controlplane import SERVICE_RANGE
from tests.cluster.node import BRIDGE, POD_RANGE
from tests.cluster.residue import WATCH_TABLE
from tests.cluster.shell import run, succeeds

SET = "outside"


@contextmanager
def watched_traffic() -> Iterator[Callable[[], list[str]]]:
    """Give a function that lists where pods have tried to go since: address, protocol and port."""
    unwatch()
    run(["nft", "--file", "-"], text_input=render_rules())
    try:
        yield list_outside
    finally:
        unwatch()


def unwatch() -> None:
    """Remove the rules, if there are any."""
    succeeds(["nft", "delete", "table", *WATCH_TABLE])


def list_outside() -> list[str]:
    """Where pods have tried to go since the watch began, such as '192.0.2.7 tcp 443'."""
    family, table = WATCH_TABLE
    return read_set(run(["nft", "--json", "list", "set", family, table, SET]))


def read_set(said: str) -> list[str]:
    """The elements of the set as nft prints it in JSON."""
    (found,) = (entry["set"] for entry in json.loads(said)["nftables"] if "set" in entry)
    return sorted(" ".join(str(part) for part in one["concat"]) for one in found.get("elem", []))


def render_rules() -> str:
    """Rules that note, before addresses are translated, what comes from pods and is for nobody in the cluster."""
    family, table = WATCH_TABLE
    return f"""
table {family} {table} {{
  set {SET} {{
    type ipv4_addr . inet_proto . inet_service
    flags dynamic
    size 65535
  }}
  chain pods {{
    type filter hook prerouting priority raw; policy accept;
    iifname != "{BRIDGE}" accept
    ip daddr {{ {POD_RANGE}, {SERVICE_RANGE} }} accept
    meta l4proto {{ tcp, udp }} add @{SET} {{ ip daddr . meta l4proto . th dport }}
    drop
  }}
}}
"""

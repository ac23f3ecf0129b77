"""Catalogs with two replicas of a planning server before each, for reads while something goes wrong."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.debian import unpack_package
from tests.examples import ALL_CASES
from tests.spark.index_bed import Lake
from tests.spark.restserver import rest_catalog
from tests.unit.planning_faults import TOKEN, UPSTREAM_SECONDS, Reader, World
from tests.unit.serving_bed import guard, rest_settings, secrets, sql_settings
from tests.unit.serving_replicas import faked_clock, replicas


def sql_world(stack: ExitStack, root: Path, reader: Reader) -> World:
    """An Sql catalog and two replicas; their clocks can jump where all cases are taken."""
    settings = sql_settings(root, files_per_page=2, upstream_timeout_seconds=UPSTREAM_SECONDS)
    clock, environment = root / "clock", secrets(TOKEN, "the-seal-of-the-faults")
    if ALL_CASES:
        clock.write_text("+0")
        (library,) = unpack_package("libfaketime").rglob("libfaketimeMT.so.1")
        environment |= faked_clock(library, clock)
    lake = Lake(root)
    balancer = stack.enter_context(replicas(root / "replicas", settings, environment))
    return World(lake, balancer, reader, clock=clock if ALL_CASES else None)


def rest_world(stack: ExitStack, root: Path, reader: Reader) -> World:
    """A REST catalog, a guard before it, and two replicas."""
    uri = stack.enter_context(rest_catalog(root))
    upstream = stack.enter_context(guard(uri))
    given = {"files_per_page": 2, "upstream_timeout_seconds": UPSTREAM_SECONDS}
    settings = rest_settings(upstream.address, root, **given)
    environment = secrets(seal="the-seal-of-the-faults")
    balancer = stack.enter_context(replicas(root / "replicas", settings, environment))
    return World(Lake(root, kind=rest_settings(uri, root).warehouse.catalog), balancer, reader, upstream)

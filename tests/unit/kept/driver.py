"""Starts a kept driver that runs the programs of this package.

Arguments: the folder that it works in, and that of its credentials.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import runpy
import sys
from pathlib import Path

from skipstone.keeping.keeper import Keeper, KeeperPlace
from skipstone.keeping.processes import ChildOrder

if __name__ == "__main__":
    work = Path(sys.argv[1])
    place = KeeperPlace.from_environment(os.environ, work / "runs", (work / "scratch",))
    place = dataclasses.replace(place, credentials=Path(sys.argv[2]), programs="tests.unit.kept.programs")
    look = float(os.environ.get("LOOK_SECONDS", place.look_seconds))
    place = dataclasses.replace(place, look_seconds=look, progress_seconds=0.1)
    if account := os.environ.get("ACCOUNT"):
        place = dataclasses.replace(place, server=dataclasses.replace(place.server, account=Path(account)))
    logging.basicConfig(level=logging.INFO)
    outcome = Keeper(place).keep()
    if isinstance(outcome, ChildOrder):
        outcome.enter()
        runpy.run_module(outcome.module, run_name="__main__", alter_sys=True)
        sys.exit(0)
    sys.exit(outcome)

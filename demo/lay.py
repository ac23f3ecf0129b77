"""Lays out the demonstration's files in the Warehouse. Runs in a pod that reaches the Warehouse."""

from __future__ import annotations

import argparse
import sys

from demo.data import FEED, count_lines, write_all
from demo.lakes import open_lake


def main(argv: list[str]) -> int:
    """Command line: ``lay ROOT``."""
    parser = argparse.ArgumentParser(prog="demo.lay", description="write the demonstration's CSV files")
    parser.add_argument("root", help="the Warehouse's root: a directory, or s3://bucket/prefix")
    with open_lake(parser.parse_args(argv).root).writing() as folder:
        flights, changes = write_all(folder), count_lines(folder / FEED) - 1
    print(f"{flights} flights in 12 monthly files, feed with {changes} changes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

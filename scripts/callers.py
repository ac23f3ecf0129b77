"""Print how many private functions of each package have one caller: such a function has to earn its name.

A function with one caller is read on the way through its caller, so it is there for its name alone. Printed by
`make lint`, not enforced; `--list PACKAGE` names them, the shortest first.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "core": "core/skipstone_core",
    "operator": "operator/skipstone_operator",
    "report": "report/skipstone_report",
    "data plane": "spark_apps/skipstone",
    "command line": "cli/skipstone_cli",
    "local": "local/skipstone_local",
}
#: Percent of the private functions that may have one caller.
GOAL = 45
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Private:
    """A private function, how many lines it has, and which functions of its module name it ("" is the module)."""

    place: str
    lines: int
    callers: frozenset[str]


class _References(ast.NodeVisitor):
    """Which functions of a module name what."""

    def __init__(self) -> None:
        self.within: list[str] = [""]
        self.found: dict[str, set[str]] = {}

    def visit(self, node: ast.AST) -> None:
        """Note a name, or look into what has one."""
        is_function = isinstance(node, Function)
        if is_function:
            self.within.append(f"{node.name}:{node.lineno}")
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            self.found.setdefault(name, set()).add(self.within[-1])
        self.generic_visit(node)
        if is_function:
            self.within.pop()


def find_private(package: Path) -> Iterator[Private]:
    """The private functions and methods of ``package``; magic methods are not private."""
    for path in sorted(package.rglob("*.py")):
        tree, references = ast.parse(path.read_text()), _References()
        references.visit(tree)
        for node in ast.walk(tree):
            if isinstance(node, Function) and node.name.startswith("_") and not node.name.startswith("__"):
                callers = references.found.get(node.name, set()) - {f"{node.name}:{node.lineno}"}
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield Private(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", lines, frozenset(callers))


def main(arguments: list[str]) -> None:
    """Print a line for each package, or the functions of one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", choices=PACKAGES, help="name the private functions with one caller of this package")
    asked = parser.parse_args(arguments).list
    for name in [asked] if asked else PACKAGES:
        private = list(find_private(ROOT / PACKAGES[name]))
        single = sorted((one for one in private if len(one.callers) == 1), key=lambda one: (one.lines, one.place))
        share = 100 * len(single) / max(1, len(private))
        print(
            f"{name}: {len(single)} of {len(private)} private functions have one caller, {share:.0f} % (goal {GOAL} %)"
        )
        for one in single if asked else ():
            print(f"  {one.lines:3d} lines  {one.place}")


if __name__ == "__main__":
    main(sys.argv[1:])

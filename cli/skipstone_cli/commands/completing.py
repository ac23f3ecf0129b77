"""What a shell offers when the user presses Tab: kinds, then the names that the API server lists.

A shell shows no errors meanwhile: whatever fails offers nothing. Must not print anything itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from typer import Typer
from typer._click.shell_completion import (  # Typer's own copy of Click, and commands are of its classes
    CompletionItem,
    ShellComplete,
)
from typer.main import get_command

from skipstone_cli.cluster.api import Api
from skipstone_cli.errors import CliError
from skipstone_cli.kinds import KINDS, ResourceKind
from skipstone_cli.reading import name_of

#: Of kubectl: put no blank behind what is taken, offer no files.
_NO_SPACE, _NO_FILES = 2, 4


def offer_targets(open_api: Callable[[], Api], incomplete: str, allowed: Sequence[ResourceKind] = KINDS) -> list[str]:
    """Beginnings of ``KIND/NAME`` for what is written so far; whole ones as soon as that is of one kind."""
    word, slash, name = incomplete.partition("/")
    kinds = [(kind, spelled) for kind in allowed if (spelled := _spelled(kind, word, whole=bool(slash)))]
    if len(kinds) != 1:
        return [] if slash else [f"{spelled}/" for _, spelled in kinds]
    ((kind, spelled),) = kinds
    try:
        found = open_api().list_kind(kind)
    except CliError:
        return []
    return sorted(f"{spelled}/{name_of(one)}" for one in found if name_of(one).startswith(name))


def _spelled(kind: ResourceKind, word: str, *, whole: bool) -> str:
    """The first name of ``kind`` that begins with ``word``, or is it; empty if none does."""
    names = (kind.short, kind.singular, kind.plural)
    return next((one for one in names if (one == word if whole else one.startswith(word))), "")


class _ForKubectl(ShellComplete):
    """What is offered, a line each; kubectl has scripts of its own for each shell."""

    def source_vars(self) -> dict[str, Any]:
        """None: there is no script."""
        return {}

    def get_completion_args(self) -> tuple[list[str], str]:
        """Nothing: the arguments are given."""
        return [], ""

    def format_completion(self, item: CompletionItem) -> str:
        """The value, and what it means."""
        return f"{item.value}\t{item.help}" if item.help else str(item.value)


def kubectl_completions(app: Typer, arguments: Sequence[str]) -> str:
    """What kubectl expects of the program ``kubectl_complete-skipstone``: a line for each offer, then what to do.

    ``arguments``: those after ``kubectl skipstone``, the last of which is not complete.
    """
    *before, last = arguments or [""]
    shell = _ForKubectl(get_command(app), {}, "kubectl skipstone", "")
    offers = shell.get_completions(list(before), last)
    values = [one for one in offers if one.type == "plain"]
    lines = [shell.format_completion(one) for one in values]
    takes_files = any(one.type in ("file", "dir") for one in offers)
    ends_open = bool(values) and all(str(one.value).endswith("/") for one in values)
    return "\n".join([*lines, f":{(0 if takes_files else _NO_FILES) | (_NO_SPACE if ends_open else 0)}"])

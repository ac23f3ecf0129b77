"""How bash and kubectl ask for what to offer, where Typer does not do it, and what kubectl is told.

Must not print anything itself.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

from typer import Typer
from typer.main import get_command

#: Of kubectl: put no blank behind what is taken, offer no files.
_NO_SPACE, _NO_FILES = 2, 4
#: Where bash splits words that have no blank between them: most of its COMP_WORDBREAKS, the rest ends commands.
_BREAKS = frozenset("=:@")


@dataclass
class Wish:
    """A request for completions beside values."""

    files: bool = False


def kubectl_completions(app: Typer, arguments: Sequence[str]) -> str:
    """Return the output that kubectl expects of ``kubectl_complete-skipstone``: a line for each offer, then what to do.

    ``arguments``: those after ``kubectl skipstone``, the last of which is not complete.
    """
    *before, last = arguments or [""]
    wish = Wish()
    offers = _offers(app, wish, before, last)
    lines = [f"{offer.value}\t{offer.help}" if offer.help else str(offer.value) for offer in offers]
    ends_open = bool(offers) and all(str(offer.value).endswith("/") for offer in offers)
    return "\n".join([*lines, f":{(0 if wish.files else _NO_FILES) | (_NO_SPACE if ends_open else 0)}"])


def _offers(app: Typer, wish: Wish, before: Sequence[str], last: str) -> Sequence[Any]:
    """Return Typer's completions for any shell: items with a value and a help. ``wish``: the context's ``obj``."""
    command = get_command(app)
    # Some versions of Typer come with a Click of their own, others use Click itself: commands tell which.
    (core,) = {kind.__module__ for kind in type(command).__mro__ if kind.__name__ == "Command"}
    completion = import_module(f"{core.removesuffix('.core')}.shell_completion")
    shell = completion.get_completion_class("bash")(command, {"obj": wish}, "kubectl skipstone", "")
    completions: Sequence[Any] = shell.get_completions(list(before), last)
    return completions


def join_for_bash(environment: MutableMapping[str, str]) -> None:
    """Change the words that bash has put into the environment to those that the user wrote."""
    words = joined_words(environment["COMP_WORDS"].split("\n"), int(environment["COMP_CWORD"]))
    environment["COMP_WORDS"], environment["COMP_CWORD"] = "\n".join(words), str(len(words) - 1)


def joined_words(words: Sequence[str], cursor: int) -> list[str]:
    """The words up to the one at the cursor, with those joined that bash splits: ``--namespace``, ``=``, ``lake``."""
    joined = [*words[:2]]
    for before, word in pairwise(words[1 : cursor + 1]):
        # An empty word stands behind a blank: without one, the cursor would be at the sign.
        if before and word and (_BREAKS.issuperset(before) or _BREAKS.issuperset(word)):
            joined[-1] += word
        else:
            joined.append(word)
    return joined

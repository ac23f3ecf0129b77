"""The YAML of a test: steps, each with data, manifests and expectations.

Pure but for the file itself. What is unknown or of another type is an error that names the place: it is never skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from skipstone_cli.documents import ManifestLoader
from skipstone_cli.errors import CliError, unreadable

from skipstone_local.client.manifests import TEST_FILE

STEP_FIELDS = frozenset({"name", "data", "apply", "expect"})
OBJECT_FIELDS = frozenset({"object", "state", "reason", "message", "status"})
TABLE_FIELDS = frozenset({"table", "where", "columns", "rows", "count", "files"})
REFUSED_FIELDS = frozenset({"refused"})


@dataclass(frozen=True)
class Expectation:
    """One thing that must be so. ``fields``: as written; its first one says what it is about."""

    title: str
    fields: Mapping[str, Any]

    @property
    def subject(self) -> str:
        """Return the subject: ``object``, ``table`` or ``refused``."""
        return next(name for name in ("object", "table", "refused") if name in self.fields)


@dataclass(frozen=True)
class Step:
    """Data and manifests that are applied, then what must be so once everything is settled.

    ``data``: files by the folder that they are copied into, CLAIM or CLAIM/FOLDER.
    """

    name: str
    data: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    apply: tuple[Path, ...] = ()
    expectations: tuple[Expectation, ...] = ()


@dataclass(frozen=True)
class TestPlan:
    """All steps of a file, in order."""

    path: Path
    steps: tuple[Step, ...]


def read_plan(place: Path) -> TestPlan:
    """The test of a folder, or the one in a file. Raises CliError."""
    path = place / TEST_FILE if place.is_dir() else place
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=ManifestLoader)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    except yaml.YAMLError as error:
        raise CliError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict) or not isinstance(document.get("steps"), list) or not document["steps"]:
        raise CliError(f"{path} has no steps: write a list 'steps', each with 'apply' and 'expect'")
    steps = tuple(
        _read_step(step, f"{path}: steps[{number}]", path.parent, number)
        for number, step in enumerate(document["steps"])
    )
    return TestPlan(path, steps)


def _read_step(step: object, where: str, folder: Path, number: int) -> Step:
    fields = _mapping(step, where, STEP_FIELDS)
    data = _mapping(fields.get("data") or {}, f"{where}.data", None)
    expectations = _list(fields.get("expect"), f"{where}.expect")
    return Step(
        name=str(fields.get("name") or f"step {number + 1}"),
        data={target: _paths(files, f"{where}.data.{target}", folder) for target, files in data.items()},
        apply=_paths(fields.get("apply"), f"{where}.apply", folder),
        expectations=tuple(
            _read_expectation(expected, f"{where}.expect[{place}]") for place, expected in enumerate(expectations)
        ),
    )


def _read_expectation(given: object, where: str) -> Expectation:
    fields = _mapping(given, where, OBJECT_FIELDS | TABLE_FIELDS | REFUSED_FIELDS)
    for subject, allowed in (("object", OBJECT_FIELDS), ("table", TABLE_FIELDS), ("refused", REFUSED_FIELDS)):
        if subject in fields:
            _mapping(fields, where, allowed)
            if len(fields) == 1 and subject != "refused":
                raise CliError(
                    f"{where} expects nothing of {fields[subject]}: add one of {_words(allowed - {subject})}"
                )
            return Expectation(_title(subject, fields), fields)
    raise CliError(f"{where} is about nothing: write 'object: tbl/NAME', 'table: NAME' or 'refused: TEXT'")


def _title(subject: str, fields: Mapping[str, Any]) -> str:
    parts: list[str] = []
    for name, value in fields.items():
        if name == "status" and isinstance(value, dict):
            parts += [f"{path} {wanted}" for path, wanted in value.items()]
        elif name in ("columns", "rows"):
            parts += [f"{len(value)} rows"] if name == "rows" and isinstance(value, list) else []
        elif name != subject:
            parts.append(f"{name} {value}")
    return f"{subject} {fields[subject]}" + (f": {', '.join(parts)}" if parts else "")


def _paths(given: object, where: str, folder: Path) -> tuple[Path, ...]:
    """Files and folders by their paths, which are relative to the file of the test; patterns are followed."""
    paths: list[Path] = []
    for text in _list(given, where):
        matches = sorted(folder.glob(str(text))) if any(sign in str(text) for sign in "*?[") else [folder / str(text)]
        if not matches or not all(match.exists() for match in matches):
            raise CliError(f"{where} names {text}, which does not exist: paths are relative to {folder}")
        paths += matches
    return tuple(paths)


def _mapping(value: object, where: str, allowed: frozenset[str] | None) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise CliError(f"{where} is {value!r:.40}: write a mapping")
    if allowed is not None and (unknown := set(value) - allowed):
        raise CliError(f"{where} has the unknown field {sorted(unknown)[0]!r}: use {_words(allowed)}")
    return value


def _list(value: object, where: str) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise CliError(f"{where} is {value!r:.40}: write a list")
    return value


def _words(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))

"""Rules for paths of files, which are relative to a root that they never leave. Pure."""

from __future__ import annotations

from skipstone_operator.resources.rules.markers import Rule


def _first_folder(path: str) -> str:
    return next((part for part in path.split("/") if part not in ("", ".")), "")


PATH_RULES = (
    Rule(
        rule="self.all(p, !p.startsWith('/') && !p.contains('://') && !p.contains('\\\\'))",
        holds=lambda paths: not any(path.startswith("/") or "://" in path or "\\" in path for path in paths),
        message="source.paths must be relative to the root of the Warehouse or of source.location: write "
        "'landing/a.csv', without a leading '/', a scheme or a backslash",
    ),
    Rule(
        rule="self.all(p, !p.matches('(^|/)[.][.](/|$)'))",
        holds=lambda paths: not any(".." in path.split("/") for path in paths),
        message="source.paths may not contain '..': name files below the root",
    ),
    Rule(
        rule="self.all(p, !p.matches('^([.]/)*[.]skipstone(/|$)'))",
        holds=lambda paths: not any(_first_folder(path) == ".skipstone" for path in paths),
        message="source.paths may not lead into '.skipstone', which holds the records of runs: use another folder",
    ),
)

"""Takes the steps of a test in a lake of their own: copies data, applies, waits until all is settled, then judges."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skipstone_cli.errors import CliError, ExitCode, NotFound
from skipstone_cli.kinds import API_VERSION, TABLE, WAREHOUSE, ResourceKind, parse_target, require_name
from skipstone_cli.output.screen import Screen
from skipstone_cli.reading import JsonObject, text_of
from skipstone_core.errors import LakeError

from skipstone_local.client.objects import Objects
from skipstone_local.client.opening import open_root
from skipstone_local.lake.reading import ReadRequest, TableReader, find_reader, local_warehouse, table_ref
from skipstone_local.places import RootFolder
from skipstone_local.testing.cases import Expectation, Step, read_plan
from skipstone_local.testing.judging import judge_files, judge_object, judge_rows
from skipstone_local.testing.reports import Verdict, to_junit, verdict_lines
from skipstone_local.up import UpOptions, run

REFUSED = "refused: "


@dataclass(frozen=True)
class TestQuery:
    """Which test, where its result goes as JUnit's XML (empty: nowhere), and a folder that is kept (empty: none is)."""

    place: str
    junit: str = ""
    root: str = ""
    namespace: str = "default"


def run_test(screen: Screen, query: TestQuery) -> ExitCode:
    """Run a test and show how it ended. Raises CliError."""
    plan = read_plan(Path(query.place))
    reader = find_reader()
    with _root(query.root) as root:
        bench = Bench(root, query.namespace, reader, screen)
        verdicts = [verdict for step in plan.steps for verdict in bench.take(step)]
    screen.write("".join(f"{line}\n" for line in verdict_lines(verdicts)))
    if query.junit:
        _write(query.junit, to_junit(query.place, verdicts))
    return ExitCode.FAILED if any(verdict.wrong for verdict in verdicts) else ExitCode.FINE


@dataclass
class Bench:
    """The lake of one test. ``lines``: what was told while the last step ran."""

    root: RootFolder
    namespace: str
    reader: TableReader
    screen: Screen
    lines: list[str] = field(default_factory=list)

    def take(self, step: Step) -> Iterator[Verdict]:
        """Take a step; a verdict for its manifests, and one for each of its expectations."""
        self.screen.note(f"{step.name}: {len(step.apply)} files of manifests")
        self._copy(step)
        self.lines.clear()
        begin = time.monotonic()
        options = UpOptions(once=True, namespace=self.namespace)
        run(self.root.path, [str(path) for path in step.apply], options, self._tell, os.environ)
        settled = time.monotonic() - begin
        yield from self._unexpected(step, settled)
        with ExitStack() as until:
            objects = open_root(self.root, self.namespace, until, self.screen.note)
            for expectation in step.expectations:
                begin = time.monotonic()
                wrong = self._judge(objects, expectation)
                yield Verdict(step.name, expectation.title, wrong, time.monotonic() - begin)

    def _tell(self, line: str) -> None:
        self.lines.append(line)
        self.screen.note(line)

    def _copy(self, step: Step) -> None:
        for target, files in step.data.items():
            claim, _, folder = target.partition("/")
            place = self.root.claim(self.namespace, require_name(claim, "a claim")) / folder
            place.mkdir(parents=True, exist_ok=True)
            for file in files:
                if file.is_dir():
                    shutil.copytree(file, place, dirs_exist_ok=True)
                else:
                    shutil.copy2(file, place)

    def _unexpected(self, step: Step, seconds: float) -> Iterator[Verdict]:
        """One verdict for the manifests: none may be refused but those that are expected to be."""
        expected = [
            str(expectation.fields["refused"]) for expectation in step.expectations if expectation.subject == "refused"
        ]
        wrong = [line for line in self._refusals() if not any(text in line for text in expected)]
        yield Verdict(step.name, "manifests are accepted", wrong, seconds)

    def _refusals(self) -> list[str]:
        return [line for line in self.lines if line.startswith(REFUSED)]

    def _judge(self, objects: Objects, expectation: Expectation) -> Sequence[str]:
        fields = expectation.fields
        if expectation.subject == "refused":
            is_refused = any(str(fields["refused"]) in line for line in self._refusals())
            return [] if is_refused else ["no manifest was refused with this text"]
        if expectation.subject == "object":
            target = parse_target(str(fields["object"]))
            return judge_object(target.kind, self._find(objects, target.kind, target.name), fields)
        return self._judge_table(objects, fields)

    def _judge_table(self, objects: Objects, fields: Mapping[str, Any]) -> Sequence[str]:
        table = self._find(objects, TABLE, str(fields["table"]))
        name = text_of(table, "spec", "warehouseRef", "name")
        warehouse = self._find(objects, WAREHOUSE, name) if name else None
        if table is None or warehouse is None:
            return ["there is no such Table with a Warehouse"]
        request = ReadRequest(
            warehouse=local_warehouse(warehouse, self.root),
            table=table_ref(table),
            where=fields.get("where"),
            columns=tuple(fields["columns"]) if "columns" in fields else None,
        )
        try:
            rows = self.reader.read(request).to_pylist() if {"rows", "count"} & set(fields) else []
            opened, total = self.reader.count_files(request) if "files" in fields else (0, 0)
        except LakeError as error:
            return [str(error)]
        return [*judge_rows(rows, fields), *judge_files(opened, total, fields)]

    def _find(self, objects: Objects, kind: ResourceKind, name: str) -> JsonObject | None:
        try:
            return objects.get(objects.resources.find_kind(API_VERSION, kind.name), self.namespace, name)
        except NotFound:
            return None


@contextmanager
def _root(kept: str) -> Iterator[RootFolder]:
    """The folder that is kept, or one that is gone afterwards."""
    if kept:
        yield RootFolder(Path(kept).absolute())
        return
    with tempfile.TemporaryDirectory(prefix="skipstone-test-") as folder:
        yield RootFolder(Path(folder))


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error}") from error

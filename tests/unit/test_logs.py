"""Logs: one JSON object a line, whatever is logged."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from skipstone_operator import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where the logs of a test go; the root logger is put back afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("skipstone_operator")
    before = (root.handlers[:], root.level, ours.level)
    hook = sys.excepthook
    yield io.StringIO()
    sys.excepthook = hook
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_time_level_logger_message_and_the_extra_fields(stream: io.StringIO) -> None:
    logs.set_up("info", stream)
    logging.getLogger("skipstone_operator.runtime").info("took %s", "it", extra={"key": "Table/air/flights", "n": 2})
    (line,) = lines(stream)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "skipstone_operator.runtime",
        "message": "took it",
        "key": "Table/air/flights",
        "n": 2,
    }


def test_a_message_of_several_lines_stays_on_one(stream: io.StringIO) -> None:
    logs.set_up("info", stream)
    logging.getLogger("skipstone_operator").warning('two\nlines and "quotes"')
    (line,) = lines(stream)
    assert line["message"] == 'two\nlines and "quotes"'


def test_a_stack_is_a_field(stream: io.StringIO) -> None:
    logs.set_up("info", stream)
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("skipstone_operator").exception("failed")
    (line,) = lines(stream)
    assert "ValueError: broken" in line["stack"]


def test_what_ends_the_process_unforeseen_is_a_line_of_json_too(stream: io.StringIO) -> None:
    logs.set_up("info", stream)
    error = RuntimeError("out of ideas")
    sys.excepthook(type(error), error, None)
    (line,) = lines(stream)
    assert (line["level"], line["message"]) == ("critical", "ending: out of ideas")
    assert "RuntimeError" in line["stack"]


def test_an_extra_field_of_any_type_is_written(stream: io.StringIO) -> None:
    logs.set_up("info", stream)
    logging.getLogger("skipstone_operator").info("x", extra={"value": {1}})
    assert lines(stream)[0]["value"] == "{1}"


def test_an_extra_field_cannot_replace_the_level(stream: io.StringIO) -> None:
    logs.set_up("info", stream)
    logging.getLogger("skipstone_operator").info("x", extra={"level": "fake", "logger": "fake"})
    assert (lines(stream)[0]["level"], lines(stream)[0]["logger"]) == ("info", "skipstone_operator")


def test_an_endless_message_is_cut(stream: io.StringIO) -> None:
    logs.set_up("info", stream)
    logging.getLogger("skipstone_operator").info("x" * 200_000)
    assert len(stream.getvalue()) < 10_000


@pytest.mark.parametrize(("level", "shown"), [("debug", 3), ("info", 2), ("warning", 1), ("error", 0)])
def test_our_own_level_is_chosen_and_libraries_speak_from_warning(stream: io.StringIO, level: str, shown: int) -> None:
    logs.set_up(level, stream)
    ours = logging.getLogger("skipstone_operator.x")
    ours.debug("one")
    ours.info("two")
    ours.warning("three")
    logging.getLogger("kopf.reactor").info("never")
    assert len(lines(stream)) == shown

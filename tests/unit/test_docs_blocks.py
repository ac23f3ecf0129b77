"""Every code block of the documentation is run, or stands in the one list that says why it is not."""

from __future__ import annotations

from pathlib import Path

from tests.docs.blocks import APPLIED, READ, ROOT, RUN, Accounts, blocks_of, pages

EVERYTHING = [block for page in pages() for block in blocks_of(page)]


def test_every_block_names_its_language() -> None:
    assert len(EVERYTHING) > 50
    known = {*RUN, *APPLIED, *READ}
    assert [f"{block.page}:{block.line}" for block in EVERYTHING if block.language not in known] == []


def test_every_block_that_a_reader_runs_is_accounted_for() -> None:
    assert [f"{block.page}:{block.line}" for block in Accounts().unaccounted()] == []


def test_no_entry_outlives_its_block() -> None:
    assert list(Accounts().unused()) == []


def test_tests_that_run_blocks_exist() -> None:
    tests = [entry["by"] for entry in Accounts().tested if entry["by"].startswith("tests/")]
    assert tests
    assert [test for test in tests if not (ROOT / test).exists()] == []


def test_what_is_followed_names_files_of_the_repository() -> None:
    named = [
        word
        for block in EVERYTHING
        if block.language == "sh"
        for word in block.text.split()
        if word.startswith(("examples/", "charts/"))
    ]
    assert len(named) > 10
    assert [word for word in named if not Path(ROOT / word).exists()] == []

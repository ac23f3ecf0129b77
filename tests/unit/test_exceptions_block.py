"""The tables of exceptions that soaks write into the guide."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.exceptions_block import Exceptional, Exceptions, with_block

PAGE = """before

<!-- exceptions: a -->

old

<!-- end -->

between

<!-- exceptions: b -->
<!-- end -->
after
"""


def test_a_block_is_replaced_and_the_rest_of_the_page_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    found = Exceptions("a", page)
    found.add("`date` of 44 BC", "`connect`", "refused: a | b\nc", "none")
    found.add("`date` of 44 BC", "`adaptive`", "refused: a | b\nc", "none")
    found.add("truncate", "", "refused", "set it")
    found.add("truncate", "", "refused", "set it")
    found.add("drop", "", "refused", "set it")
    found.write()
    text = page.read_text()
    assert text.startswith("before\n\n<!-- exceptions: a -->\n\n| In the database | Setting |")
    assert "| `date` of 44 BC | `connect`, `adaptive` | refused: a \\| b c | none |\n" in text
    assert text.count("| truncate; drop |  | refused | set it |\n") == 1
    assert text.endswith(PAGE[PAGE.index("<!-- end -->") :])
    found.write()
    assert page.read_text() == text


def test_a_page_without_the_block_is_refused() -> None:
    with pytest.raises(ValueError, match="exceptions: c"):
        with_block(PAGE, "c", [Exceptional("a", "b", "c", "d")])

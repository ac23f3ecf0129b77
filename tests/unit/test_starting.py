"""How a driver imports what it needs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from skipstone.starting import lean_imports

#: What drivers import, which of the slow modules came with it, and whether what needs pandas finds it afterwards.
PROGRAM = """
import gc, json, sys
from skipstone.starting import lean_imports
with lean_imports():
    import skipstone.runs.load, skipstone.runs.merging.merge, skipstone.runs.reindex
    import pyarrow as pa
    values = pa.array([1, None, 3]), pa.scalar("a"), pa.array([float("nan")])
before = [name for name in ("pandas", "boto3", "botocore") if name in sys.modules]
frame = pa.table({"number": values[0]}).to_pandas()
again = pa.array(frame["number"]).null_count
print(json.dumps([before, len(frame), again, gc.isenabled(), gc.get_freeze_count() > 100_000]))
"""


def test_a_driver_imports_neither_pandas_nor_boto3_and_finds_pandas_when_something_asks_for_it() -> None:
    told = subprocess.run([sys.executable, "-c", PROGRAM], check=True, stdout=subprocess.PIPE).stdout
    assert json.loads(told) == [[], 3, 1, True, True]


def test_an_import_that_fails_leaves_the_imports_as_they_were() -> None:
    before = list(sys.meta_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), lean_imports():
        __import__("no_such_module")
    assert sys.meta_path == before

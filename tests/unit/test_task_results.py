"""What tasks in threads of one process give when some of them fail."""

from __future__ import annotations

import pytest
from skipstone.tasks.runner import InProcess


class _Broken(Exception):
    pass


def half(task: int, task_id: str) -> int:
    if task % 2:
        raise _Broken(f"{task} is odd")
    return task // 2


def test_results_of_tasks_beside_one_that_fails_are_given_before_its_error_is_raised() -> None:
    taken: list[int] = []
    with pytest.raises(_Broken, match="3 is odd"):
        InProcess(4).run(half, [4, 2, 3, 8], taken.append)
    assert {2, 1} <= set(taken)


def test_all_results_come_in_the_order_of_the_tasks() -> None:
    taken: list[int] = []
    assert InProcess(3).run(half, [8, 6, 4, 2], taken.append) == taken == [4, 3, 2, 1]

"""``python -m skipstone_operator.checking``: prints what is right and what is wrong, a line each. The chart's test pod.

Exit codes: 0 everything is right, 1 something is not or could not be asked.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping

from skipstone_core.errors import SkipstoneError

from skipstone_operator.adapters.connection import connect
from skipstone_operator.checking.checks import Checks, Patience
from skipstone_operator.settings import Settings, load_settings

EXIT_RIGHT = 0
EXIT_WRONG = 1


def main(environment: Mapping[str, str], patience: Patience | None = None) -> int:
    """Run every check; the exit code."""
    try:
        wrong = asyncio.run(check(load_settings(environment), patience or Patience()))
    except (SkipstoneError, OSError) as error:
        print(f"error: {error}")
        return EXIT_WRONG
    return EXIT_WRONG if wrong else EXIT_RIGHT


async def check(settings: Settings, patience: Patience) -> bool:
    """Print what each check found; whether something is wrong. Raises NoCluster and ApiFault."""
    connection = await connect()
    wrong = False
    try:
        for title, finding in Checks(connection=connection, settings=settings, patience=patience).all():
            problems = await finding
            wrong = wrong or bool(problems)
            for line in [f"error: {problem}" for problem in problems] or [f"ok: {title}"]:
                print(line, flush=True)
    finally:
        await connection.close()
    return wrong


if __name__ == "__main__":
    sys.exit(main(os.environ))

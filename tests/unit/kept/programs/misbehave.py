"""Does what a run should not do, as the variable DO says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    wish = os.environ["DO"]
    if wish == "crash":
        print("the last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if wish == "raise":
        raise RuntimeError("nothing goes")
    if wish == "litter":
        (Path(os.environ["SHARED"]) / "secret").write_text("of this run")
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        held = bytearray(200 << 20)
        sys.exit(0 if held else 1)
    if wish == "bury":
        # Deeper than a removal that calls itself for each folder gets.
        os.chdir(os.environ["SHARED"])
        for _ in range(1500):
            Path("d").mkdir()
            os.chdir("d")
        sys.exit(0)
    if wish == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(os.environ["SKIPSTONE_REPORT"]).write_text('{"running": 1}')
    time.sleep(1000)

"""Runs the commands of pages as a reader would: in a shell, in a checkout, on the embedded cluster.

kind and Docker are stand-ins (`standins/`). SKIPSTONE_DOCS_NAMES, such as `lake=mine,skipstone-system=system`, gives
namespaces other names, and SKIPSTONE_DOCS_HELM is added to `helm install`, for a cluster that others use too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.cluster.context import find_context
from tests.cluster.layout import NODE
from tests.docs.blocks import ROOT, RUN, Accounts, Block, blocks_of

STANDINS = Path(__file__).with_name("standins")
NAMES = dict(pair.split("=") for pair in os.environ.get("SKIPSTONE_DOCS_NAMES", "").split(",") if pair)
HELM = os.environ.get("SKIPSTONE_DOCS_HELM", "")
#: A bound against hangs, for one block.
SECONDS = 3000


class Reader:
    """Someone who has a checkout, a shell and a cluster. ``transcript`` keeps what was run and what came."""

    def __init__(self, folder: Path, transcript: Path) -> None:
        """``folder``: for the checkout and for what the stand-ins remember."""
        self.checkout = folder / "skipstone"
        self.transcript = transcript
        self.accounts = Accounts()
        files = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True).stdout
        self.checkout.mkdir(parents=True)
        listed = subprocess.run(
            ["tar", "-C", str(ROOT), "--null", "-T", "-", "-cf", "-"], input=files, capture_output=True, check=True
        )
        subprocess.run(["tar", "-C", str(self.checkout), "-xf", "-"], input=listed.stdout, check=True)
        python = folder / "python"
        subprocess.run([sys.executable, "-m", "venv", str(python)], check=True)
        context = find_context("embedded")
        (folder / "standins").mkdir()
        self.environment = {
            **os.environ,
            "KUBECONFIG": context.kubeconfig,
            "PATH": f"{STANDINS}:{context.kubectl.parent}:{context.helm.parent}:{python / 'bin'}:{os.environ['PATH']}",
            "STANDIN_STATE": str(folder / "standins"),
            "STANDIN_KUBECONFIG": context.kubeconfig,
            "STANDIN_CONTAINERD": str(NODE.containerd_socket),
            "COLUMNS": "160",
        }
        self.environment.pop("PYTHONPATH", None)
        self.environment.pop("VIRTUAL_ENV", None)

    def follow(self, page: str) -> None:
        """Run what a reader of ``page`` would, in order. Blocks of Python that follow one another are one program.

        Raises AssertionError with what came of the first block that fails.
        """
        python = ""
        for block in blocks_of(page):
            if block.language not in RUN or self.accounts.is_left_out(block):
                continue
            if block.language == "python":
                python += self._as_run(block)
                continue
            self._run_python(page, python)
            python = ""
            self.run(self._as_run(block), f"{page}:{block.line}")
        self._run_python(page, python)

    def _run_python(self, page: str, program: str) -> None:
        """Give ``program`` to the pod that the page names for it."""
        if program:
            pod = re.search(r"pod/([a-z-]+)", (ROOT / page).read_text())
            assert pod, f"{page} has Python and names no pod that runs it"
            command = renamed(f"kubectl exec --stdin --namespace lake pod/{pod[1]} -- python -")
            self.run(command, f"{page} (Python)", given=program)

    def run(self, script: str, place: str, given: str = "") -> str:
        """What ``script`` prints. Raises AssertionError when a command of it fails."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.checkout,
            env=self.environment,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        with self.transcript.open("a") as out:
            out.write(f"# {place}\n{script}{given}\n# -> {done.returncode}\n{done.stdout}\n")
        assert done.returncode == 0, f"{place} failed:\n{script}\n{done.stdout}"
        return done.stdout

    def _as_run(self, block: Block) -> str:
        text = block.commands()
        for change in self.accounts.changes:
            if change.page == block.page:
                text = text.replace(change.find, change.put)
        return renamed(text)


def renamed(text: str) -> str:
    """``text`` with the namespaces that this run is given, for a cluster that others use too."""
    for name, other in NAMES.items():
        text = re.sub(
            rf"(--namespace |create namespace |watchNamespaces=\{{|namespace/|serviceaccount:|-n ){name}\b",
            rf"\g<1>{other}",
            text,
        )
    return re.sub(r"(helm install \S+ \S+)", rf"\1 {HELM}", text) if HELM else text


def name_of(namespace: str) -> str:
    """What ``namespace`` of the pages is called in this run."""
    return NAMES.get(namespace, namespace)

"""What Tab offers: commands, options, kinds, and the names of objects; nothing where the API server fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest
import yaml
from skipstone_cli.app import app
from skipstone_cli.commands import completing
from skipstone_cli.commands.shells import joined_words, kubectl_completions

from tests.unit.cli_stand_in import Reply, Request, StandIn, collection, index, job, refusal, stand_in, table

Offers = Callable[..., list[str]]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    # The first of these tests loads the Kubernetes client, on machines that have much to do.
    monkeypatch.setattr(completing, "SECONDS", 60.0)
    with stand_in(tmp_path) as found:
        monkeypatch.setenv("KUBECONFIG", str(found.kubeconfig))
        found.store(table("orders"), table("people"), index("by-day"), job("MergeJob", "m"), job("LoadJob", "l"))
        yield found


@pytest.fixture
def bash(server: StandIn) -> Offers:
    """What the script for bash gets."""

    def offers(*words: str) -> list[str]:
        line = {"COMP_WORDS": "\n".join(["skipstone", *words]), "COMP_CWORD": str(len(words))}
        result = server.run(_SKIPSTONE_COMPLETE="complete_bash", **line)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout.split()

    return offers


def programs(folder: Path, *words: str, **environment: str) -> list[tuple[int, str, str]]:
    """What the programs for kubectl and bash give, in processes that find modules in ``folder`` first."""
    bash = {"COMP_WORDS": "\n".join(["skipstone", *words]), "COMP_CWORD": str(len(words))}
    asked = {"complete": environment, "main": {**environment, **bash, "_SKIPSTONE_COMPLETE": "complete_bash"}}
    found = []
    for name, given in asked.items():
        code = f"import sys; sys.argv[0] = 'skipstone'; from skipstone_cli.__main__ import {name} as run; run()"
        path = os.pathsep.join([str(folder), *sys.path])
        result = subprocess.run(
            [sys.executable, "-c", code, *(words if name == "complete" else ())],
            env={**os.environ, "PYTHONPATH": path, **given}, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        found.append((result.returncode, result.stdout, result.stderr))
    return found


def kubectl(*words: str) -> tuple[list[str], str]:
    """What kubectl gets, and what it is to do then."""
    *lines, directive = kubectl_completions(app, words).splitlines()
    return [line.partition("\t")[0] for line in lines], directive


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["why", "tbl/"], ["tbl/orders", "tbl/people"]),
        (["why", "tbl/o"], ["tbl/orders"]),
        (["why", "tables/p"], ["tables/people"]),
        (["why", "t"], ["tbl/orders", "tbl/people"]),
        (["why", "merge"], ["mergejob/", "mergeschedule/"]),
        (["why", "mergej"], ["mergejob/m"]),
        (["reindex", ""], ["si/by-day"]),
        (["reindex", "tbl/"], []),
        (["maintain", "x"], []),
        (["why", "nothing/"], []),
        (["why", "tbl/none"], []),
        (["-n", "other", "why", "tbl/"], []),
        (["why", "-n", "other", "tbl/"], []),
        (["why", "-n", "lake", "tbl/p"], ["tbl/people"]),
        (["why", "TBL/"], ["TBL/orders", "TBL/people"]),
        (["why", "Table/o"], ["Table/orders"]),
        (["why", "Tab"], ["Table/orders", "Table/people"]),
        (["why", "MERGE"], ["MERGEjob/", "MERGEschedule/"]),
        (["why", "tables.skipstone.dev/o"], ["tables.skipstone.dev/orders"]),
        (["why", "tables.v1alpha1.skipstone.dev/o"], ["tables.v1alpha1.skipstone.dev/orders"]),
        (["why", "tables.s"], ["tables.skipstone.dev/orders", "tables.skipstone.dev/people"]),
        (["why", "tables.example.com/"], []),
        (["--version", "why", "tbl/o"], ["tbl/orders"]),
    ],
)
def test_kinds_then_names_are_offered(server: StandIn, bash: Offers, words: list[str], expected: list[str]) -> None:
    assert bash(*words) == expected
    assert kubectl(*words)[0] == expected


def test_kubectl_is_told_where_no_blank_and_no_file_belongs(server: StandIn) -> None:
    assert kubectl("why", "") == (["wh/", "tbl/", "si/", "lj/", "mj/", "ms/"], ":6")
    assert kubectl("why", "tbl/o") == (["tbl/orders"], ":4")
    assert kubectl("ma") == (["maintain"], ":4")
    assert kubectl("logs", "--fol") == (["--follow"], ":4")
    assert "status" in kubectl("")[0]
    assert "status" in kubectl()[0]


def test_nothing_is_offered_and_said_when_the_server_fails(
    server: StandIn, bash: Offers, capfd: pytest.CaptureFixture[str]
) -> None:
    server.answer(collection("Table"), refusal(403, "forbidden"), 403)
    assert bash("why", "tbl/") == kubectl("why", "tbl/")[0] == []
    server.kubeconfig.unlink()
    assert bash("why", "tbl/") == kubectl("why", "tbl/")[0] == []
    assert capfd.readouterr() == ("", "")


def test_a_broken_installation_offers_nothing_and_says_nothing(tmp_path: Path, server: StandIn) -> None:
    assert programs(tmp_path, "why", "me") == [
        (0, "mergejob/\nmergeschedule/\n:6\n", ""),
        (0, "mergejob/\nmergeschedule/\n", ""),
    ]
    (tmp_path / "typer.py").write_text("import sys; sys.stderr.write('loud'); import no_such_module")
    assert programs(tmp_path, "why", "me") == [(0, ":4\n", ""), (1, "", "")]


def test_tab_is_answered_in_time_and_what_hangs_is_left_behind(tmp_path: Path, server: StandIn) -> None:
    def hang(_request: Request) -> Reply:
        Event().wait()
        return Reply({})

    server.answers[collection("Table")] = hang
    began = time.monotonic()
    assert programs(tmp_path, "why", "tbl/") == [(0, ":4\n", ""), (0, "\n", "")]
    assert time.monotonic() - began < 30


def test_a_slow_plugin_is_left_behind(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completing, "SECONDS", 0.5)
    config = yaml.safe_load(server.kubeconfig.read_text())
    plugin = {"command": "sleep", "args": ["20"], "apiVersion": "client.authentication.k8s.io/v1"}
    config["users"][0]["user"] = {"exec": {**plugin, "interactiveMode": "Never"}}
    server.kubeconfig.write_text(yaml.safe_dump(config))
    began = time.monotonic()
    assert kubectl("why", "tbl/") == ([], ":4")
    assert time.monotonic() - began < 10


def test_a_server_that_is_busy_is_asked_once(server: StandIn, bash: Offers) -> None:
    server.answer(collection("Table"), refusal(429, "slow"), 429, headers={"Retry-After": "1"})
    assert bash("why", "tbl/") == []
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("split", "joined"),
    [
        ("why --namespace = lake tbl/o", "why --namespace=lake tbl/o"),
        ("-n lake why tbl/o", "-n lake why tbl/o"),
        ("maintain tbl/o --step = c", "maintain tbl/o --step=c"),
        ("maintain tbl/o --step =", "maintain tbl/o --step="),
        ("--as = system : serviceaccount : lake : me why t", "--as=system:serviceaccount:lake:me why t"),
        ("--context me @ kind why t", "--context me@kind why t"),
        ('--context = "my one" why t', '--context="my one" why t'),
        ("= t", "=t"),
    ],
)
def test_what_bash_splits_is_joined(split: str, joined: str) -> None:
    words = re.findall(r'"[^"]*"|[^ ]+', split)
    expected = ["skipstone", *re.findall(r'(?:"[^"]*"|[^ "])+', joined)]
    assert joined_words(["skipstone", *words, "behind"], len(words)) == expected


def test_a_blank_behind_a_sign_ends_the_word() -> None:
    assert joined_words(["skipstone", "--as", "=", ""], 3) == ["skipstone", "--as=", ""]


def test_bash_offers_values_behind_a_sign(tmp_path: Path, server: StandIn) -> None:
    assert programs(tmp_path, "maintain", "tbl/orders", "--step", "=", "comp")[1] == (0, "Compaction\n", "")
    assert programs(tmp_path, "--as", "=", "system", ":", "me", "mer")[1] == (0, "merge\n", "")


def test_only_names_that_can_exist_reach_the_shell(server: StandIn, bash: Offers) -> None:
    names = ("x;touch /tmp/x", "$(id)", "`id`", "\x1b[31mred", "a\n:1", "b\tc", "..", "a/b", "\udce4", "\u00fc", "fine")
    hostile = [{**table("x"), "metadata": {"name": name, "uid": "u"}} for name in names]
    server.store(*hostile)
    assert bash("why", "tbl/") == kubectl("why", "tbl/")[0] == ["tbl/fine"]


@pytest.mark.parametrize(
    "words",
    [
        ["merge", "-f", ""],
        ["merge", "--file", "jobs/m"],
        ["merge", "--dry-run", "--file=jobs/m"],
        ["report", "-f", ""],
        ["why", "--kubeconfig", ""],
        ["--kubeconfig", "conf"],
        ["--kubeconfig=conf"],
    ],
)
def test_options_of_files_offer_files(server: StandIn, bash: Offers, words: list[str]) -> None:
    assert kubectl(*words) == ([], ":0")
    # The script for bash offers files when it gets nothing.
    assert bash(*words) == []


def test_other_options_offer_no_files(server: StandIn) -> None:
    assert kubectl("logs", "-f", "mj/") == (["mj/m"], ":4")
    assert kubectl("why", "--context", "") == ([], ":4")
    assert kubectl("merge", "-f", "jobs/m.yaml", "ms/") == ([], ":4")

"""The command line against servers that answer as no API server should, and with logs, which need a kubelet.

Whatever happens: one sentence, the documented exit code, no traceback, and nothing taken for an empty list.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from skipstone_cli.kinds import KINDS
from typer.testing import Result

from tests.unit.cli_stand_in import (
    PLURALS,
    READY,
    TIME,
    Reply,
    Request,
    StandIn,
    collection,
    condition,
    core,
    driver,
    index,
    job,
    listing,
    refusal,
    stand_in,
    stored,
    table,
    warehouse,
    write_kubeconfig,
)

PAGE = "<html><body>Please log in</body></html>"
TABLES = collection("Table")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandIn]:
    with stand_in(tmp_path) as found:
        yield found


def sentence(result: Result, code: int) -> str:
    """The one sentence of a command that ended by this code."""
    assert result.exit_code == code, (result.stdout, result.stderr)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    assert line.startswith("skipstone: ")
    return line


def whole(*items: dict[str, Any]) -> str:
    return json.dumps(listing("Table", list(items)))


class TestStrangeAnswers:
    @pytest.mark.parametrize("reply", [
        Reply(PAGE, headers={"Content-Type": "text/html"}),
        Reply(""),
        Reply("", length=500),
        Reply(whole(table()), length=len(whole(table())) + 10),
        Reply(whole(table())[:-20]),
        Reply("null"), Reply("[]"), Reply("{}"), Reply('"TableList"'), Reply("[" * 100_000), Reply(b"\xff\xfe{"),
        Reply({"kind": "TableList", "apiVersion": "skipstone.dev/v1alpha1", "metadata": {}}),
        Reply({"kind": "TableList", "metadata": {}, "items": {}}),
        Reply({"kind": "TableList", "metadata": {}, "items": ["a"]}),
        Reply({"kind": "TableList", "metadata": {}, "items": [{"metadata": {}}]}),
        Reply({"kind": "TableList", "items": []}),
        Reply(listing("PodList", [])),
        Reply(refusal(200, "fine")),
        Reply("", 302, headers={"Location": "https://login.example/"}),
        Reply(PAGE, 404), Reply(PAGE, 403), Reply("bad gateway", 502), Reply({}, 500), Reply("", 204),
        Reply(refusal(500, "etcd is away"), 500),
    ])  # fmt: skip
    def test_is_never_an_empty_list(self, server: StandIn, reply: Reply) -> None:
        server.store(warehouse())
        server.answers[TABLES] = lambda _request: reply
        result = server.run("status")
        assert server.url in sentence(result, 3)
        assert result.stdout == ""

    @pytest.mark.parametrize("reply", [Reply(PAGE), Reply(""), Reply(listing("Table", [])), Reply({"kind": "Table"})])
    def test_is_never_an_object(self, server: StandIn, reply: Reply) -> None:
        server.answers[f"{TABLES}/orders"] = lambda _request: reply
        sentence(server.run("why", "tbl/orders"), 3)

    def test_is_never_a_log(self, server: StandIn) -> None:
        server.store(job("MergeJob", "m", READY))
        server.answer(core("pods"), listing("Pod", [driver("p", "uid-m")]))
        server.answer(core("pods", "p", "log"), PAGE, headers={"Content-Type": "text/html"})
        assert "web page" in server.run("logs", "mj/m").stderr

    def test_a_log_that_is_cut_is_told(self, server: StandIn) -> None:
        server.store(job("MergeJob", "m", READY))
        server.answer(core("pods"), listing("Pod", [driver("p", "uid-m")]))
        server.answer(core("pods", "p", "log"), "half of it", length=4000)
        result = server.run("logs", "mj/m")
        assert (result.exit_code, result.stdout) == (3, "half of it")

    def test_fields_of_other_types_hide_nothing_else(self, server: StandIn) -> None:
        odd = {"rows": "many", "conditions": 7, "writer": [], "segments": "x", "lastRun": 1, "currentRun": "y"}
        objects = [stored(kind.name, f"odd-{kind.short}", {"tableRef": 7, "warehouseRef": []}, odd) for kind in KINDS]
        server.store(*objects, warehouse())
        result = server.run("status", "--all")
        assert result.exit_code == 0
        assert all(f"{kind.short}/odd-{kind.short}  Unknown" in result.stdout for kind in KINDS)
        for kind in KINDS:
            assert server.run("why", f"{kind.short}/odd-{kind.short}").exit_code == 0

    def test_a_server_that_is_busy_is_asked_again_soon_or_not_at_all(self, server: StandIn) -> None:
        server.store(warehouse())
        later = [Reply(refusal(429, "busy"), 429, headers={"Retry-After": "0"})]
        server.answers[TABLES] = lambda _request: later.pop() if later else Reply(listing("Table", [table()]))
        assert server.run("status").exit_code == 0
        server.answer(TABLES, refusal(429, "busy"), 429, headers={"Retry-After": "3600"})
        assert "try again in 3600 seconds" in sentence(server.run("status"), 3)


class TestPages:
    def page(self, request: Request, *, gone: list[str]) -> Reply:
        token = request.query.get("continue", "")
        if token in gone:
            gone.remove(token)
            return Reply(refusal(410, "too old"), 410)
        return Reply(listing("Table", [table("b")] if token else [table("a")], "" if token else "next"))

    def test_all_pages_are_read(self, server: StandIn) -> None:
        server.answers[TABLES] = lambda request: self.page(request, gone=[])
        assert "tbl/a" in (found := server.run("status").stdout)
        assert "tbl/b" in found
        assert {one.query["limit"] for one in server.requests} == {"500"}

    def test_a_list_that_is_forgotten_is_read_once_more(self, server: StandIn) -> None:
        gone = ["next"]
        server.answers[TABLES] = lambda request: self.page(request, gone=gone)
        result = server.run("status")
        assert (result.exit_code, result.stdout.count("tbl/a"), result.stdout.count("tbl/b")) == (0, 1, 1)

    def test_a_list_that_is_forgotten_twice_is_told(self, server: StandIn) -> None:
        gone = ["next", "next"]
        server.answers[TABLES] = lambda request: self.page(request, gone=gone)
        assert "try again" in sentence(server.run("status"), 3)

    def test_pages_without_end_end(self, server: StandIn) -> None:
        server.answer(TABLES, listing("Table", [table()], "next"))
        assert "again and again" in sentence(server.run("status"), 3)


class TestRights:
    def forbid(self, server: StandIn, *paths: str) -> None:
        for path in paths:
            server.answer(path, refusal(403, f"no rights on {path}"), 403)

    def test_a_tree_that_is_not_whole_is_told(self, server: StandIn) -> None:
        server.store(warehouse(), table())
        self.forbid(server, collection("MergeJob"))
        result = server.run("status")
        assert "list mergejobs in namespace lake" in result.stderr
        assert (result.exit_code, "tbl/orders" in result.stdout) == (2, True)
        document = json.loads(server.run("status", "-o", "json").stdout)
        assert document["missingRights"] == ["list mergejobs in namespace lake"]

    def test_a_report_that_is_not_whole_is_told(self, server: StandIn, tmp_path: Path) -> None:
        server.store(warehouse(), table("<b>orders</b>"))
        self.forbid(server, collection("MergeJob"))
        printed = server.run("report")
        assert printed.exit_code == 2
        assert "the report is not whole: you may not list mergejobs" in printed.stderr
        assert "namespace lake" in printed.stdout
        assert "&lt;b&gt;orders&lt;/b&gt;" in printed.stdout
        file = tmp_path / "report.html"
        assert server.run("report", "--file", str(file)).exit_code == 2
        assert file.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
        assert "cannot be written" in server.run("report", "--file", str(tmp_path)).stderr

    def test_what_may_not_be_listed_is_never_said_not_to_exist(self, server: StandIn) -> None:
        server.store(warehouse(), table(), index())
        for hidden, line in (("Table", "tbl/orders"), ("Warehouse", "wh/lake")):
            plural = PLURALS[hidden]
            server.store(warehouse(), table(), index())
            self.forbid(server, collection(hidden))
            shown = server.run("status").stdout
            assert f"{line}  not known: you may not list {plural}" in shown
            assert "does not exist" not in shown
            assert "is named" not in shown

    def test_what_is_created_while_it_is_read_is_never_said_not_to_exist(self, server: StandIn) -> None:
        server.store(index())

        def create(_request: Request) -> Reply:
            server.store(warehouse(), table(), index())
            return Reply(listing("SecondaryIndex", [index()]))

        server.answers[collection("SecondaryIndex")] = create
        assert "does not exist" not in server.run("status").stdout

    def test_without_any_right_there_is_no_tree(self, server: StandIn) -> None:
        self.forbid(server, *(collection(kind.name) for kind in KINDS))
        assert "you may not list warehouses in namespace lake" in sentence(server.run("status"), 2)
        self.forbid(server, f"{TABLES}/orders")
        assert "you may not get tables" in sentence(server.run("why", "tbl/orders"), 2)

    def test_why_shows_the_rest(self, server: StandIn) -> None:
        last = {"id": "abc-def-1", "attempt": 1}
        failed = job("MergeJob", "m", condition("Failed", "True", "BadRecords", "row 7"), lastRun=last)
        server.store(failed)
        server.answer(core("pods", "abc-def-1-driver", "log"), "the end\n")
        self.forbid(server, core("events"), core("pods"), TABLES + "/orders")
        result = server.run("why", "mj/m")
        assert result.exit_code == 1
        assert "row 7" in result.stdout and "Left out" not in result.stdout
        assert "the end" in result.stdout
        for right in ("list events", "list pods", "get tables"):
            assert f"you may not {right} in namespace lake" in result.stderr
        assert "abc-def-1-driver" in server.run("logs", "mj/m").stderr

    def test_a_log_that_may_not_be_read_is_told(self, server: StandIn) -> None:
        server.store(job("MergeJob", "m", READY))
        server.answer(core("pods"), listing("Pod", [driver("p", "uid-m")]))
        self.forbid(server, core("pods", "p", "log"))
        assert "get pods/log in namespace lake" in server.run("why", "mj/m").stderr
        assert "you may not get pods/log" in server.run("logs", "mj/m").stderr

    def test_expired_credentials_are_told(self, server: StandIn) -> None:
        server.answer(collection("Warehouse"), refusal(401, "Unauthorized"), 401)
        assert "log in again" in sentence(server.run("status"), 2)

    def test_an_api_server_without_our_kinds_is_told(self, server: StandIn) -> None:
        server.answer(collection("Warehouse"), "404 page not found\n", 404)
        assert "install the CRDs" in sentence(server.run("status"), 2)


class TestLogs:
    def with_pods(self, server: StandIn, *pods: dict[str, Any], **status: Any) -> None:
        server.store(job("MergeJob", "m", condition("Progressing", "True", "DriverRunning"), **status))
        server.answer(core("pods"), listing("Pod", list(pods)))
        for pod in pods:
            name = pod["metadata"]["name"]
            server.answer(
                core("pods", name, "log"), f"I am {name}\r\n\x1b]0;title\x07 [bold]x[/bold] \xff".encode("latin-1")
            )

    def test_the_latest_attempt_is_shown_and_made_safe(self, server: StandIn) -> None:
        self.with_pods(server, driver("p1", "uid-m", created="2026-01-01"), driver("p2", "uid-m", attempt=2))
        result = server.run("logs", "mj/m", "--tail", "5")
        assert result.stdout == "I am p2\n\\x1b]0;title\\x07 [bold]x[/bold] \ufffd\n"
        asked = server.requests[-1]
        assert asked.query == {"container": "spark-kubernetes-driver", "tailLines": "5"}
        assert "I am p1" in server.run("logs", "mj/m", "--attempt", "1").stdout

    def test_a_run_in_a_kept_driver_is_found_in_the_log_of_that(
        self, server: StandIn, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handed = driver("p1", "uid-m")
        handed["metadata"]["labels"]["skipstone.dev/kept-driver"] = "kept-0"
        run = handed["metadata"]["labels"]["skipstone.dev/run-id"]
        handed["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        self.with_pods(server, handed)
        log = core("pods", "kept-0", "log")
        server.answer(log, f"starts\n[{run}] one\n[other-1] no\n[{run}] two\n")
        result = server.run("logs", "mj/m")
        assert (result.exit_code, result.stdout) == (0, "one\ntwo\n")
        assert "which kept driver kept-0 runs" in result.stderr
        assert server.requests[-1].query["sinceTime"] == "2026-01-01T00:00:00Z"
        assert server.run("logs", "mj/m", "--tail", "1").stdout == "two\n"

        def end(_seconds: float) -> None:
            ended = {**handed, "status": {**handed["status"], "phase": "Succeeded"}}
            server.answer(core("pods"), listing("Pod", [ended]))
            server.answer(log, f"[{run}] one\n[{run}] two\n[{run}] three\n")

        monkeypatch.setattr("time.sleep", end)
        assert server.run("logs", "mj/m", "--follow").stdout == "one\ntwo\nthree\n"

    def test_a_pod_that_is_gone_leaves_its_report(self, server: StandIn) -> None:
        last = {"id": "abc-def-2", "attempt": 2, "result": "Failed", "reason": "OutOfMemory", "message": "raise it"}
        self.with_pods(server, lastRun=last)
        result = server.run("logs", "mj/m")
        assert (result.exit_code, result.stdout) == (0, "Failed OutOfMemory: raise it\n")
        assert "the driver pod of mj/m is gone; run abc-def-2 said at its end:" in result.stderr
        assert "leave out --attempt" in sentence(server.run("logs", "mj/m", "--attempt", "1"), 2)

    def test_a_pod_that_goes_meanwhile_leaves_its_report(self, server: StandIn) -> None:
        last = {"id": "abc-def-1", "attempt": 1, "result": "Succeeded", "reason": "Committed", "message": "done"}
        self.with_pods(server, driver("p1", "uid-m"), lastRun=last)
        server.answer(core("pods", "p1", "log"), refusal(404, "pods p1 not found"), 404)
        assert server.run("logs", "mj/m").stdout == "Succeeded Committed: done\n"

    def test_a_driver_that_has_not_started_is_told_or_waited_for(
        self, server: StandIn, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pending = driver("p1", "uid-m", state="waiting")
        pending["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ErrImagePull", "message": "no"}}
        self.with_pods(server, pending)
        assert "has not started: ErrImagePull: no; use --follow" in sentence(server.run("logs", "mj/m"), 2)
        started = listing("Pod", [driver("p1", "uid-m")])
        monkeypatch.setattr("time.sleep", lambda _seconds: server.answer(core("pods"), started))
        followed = server.run("logs", "mj/m", "--follow")
        assert followed.stdout.startswith("I am p1")
        assert "ErrImagePull" in followed.stderr

    @pytest.mark.parametrize(("pods", "status"), [
        ([], {}),
        ([driver("p1", "uid-m", phase="Failed")], {"currentRun": {"id": "abc-def-2", "attempt": 2, "kind": "Merge"}}),
    ])  # fmt: skip
    def test_a_driver_that_is_still_to_come_is_waited_for(
        self, server: StandIn, monkeypatch: pytest.MonkeyPatch, pods: list[dict[str, Any]], status: dict[str, Any]
    ) -> None:
        waits = job("MergeJob", "m", condition("Progressing", "False", "WaitingForTable", "mj/a writes it"), **status)
        server.store(waits)
        server.answer(core("pods"), listing("Pod", pods))
        server.answer(core("pods", "p2", "log"), "I am p2\n")
        come = listing("Pod", [*pods, driver("p2", "uid-m", attempt=2)])
        monkeypatch.setattr("time.sleep", lambda _seconds: server.answer(core("pods"), come))
        followed = server.run("logs", "mj/m", "--follow")
        assert (followed.exit_code, followed.stdout) == (0, "I am p2\n")
        assert "mj/m has no driver yet: WaitingForTable: mj/a writes it" in followed.stderr


class TestAsking:
    def test_a_request_is_a_new_value_of_the_annotation(self, server: StandIn) -> None:
        server.store(index())
        assert [server.run("reindex", "si/by-day").exit_code for _ in range(2)] == [0, 0]
        values = [one.body["metadata"]["annotations"]["skipstone.dev/reindex"] for one in server.requests if one.body]
        assert len(set(values)) == 2
        assert server.run("reindex", "si/by-day", "--full").exit_code == 0
        last = [one.body for one in server.requests if one.body][-1]
        assert last["metadata"]["annotations"]["skipstone.dev/reindex"].startswith("full/")

    def test_steps_that_the_table_does_not_ask_for_are_refused_before_anything_is_written(
        self, server: StandIn
    ) -> None:
        server.store(table(), table("kept", maintenance={"compaction": {}}))
        for name, steps, says in (
            ("orders", (), "add resolveEqualityDeletes or compaction or snapshots or orphanFiles to spec.maintenance"),
            ("kept", ("--step", "Snapshots"), "add snapshots to spec.maintenance"),
            ("kept", ("--step", "compaction", "--step", "orphanfiles"), "does not ask for OrphanFiles"),
        ):
            assert says in sentence(server.run("maintain", f"tbl/{name}", *steps), 2)
        assert {one.method for one in server.requests} == {"GET"}
        assert server.run("maintain", "tbl/kept", "--step", "manifests", "--step", "compaction").exit_code == 0
        assert (
            server.requests[-1]
            .body["metadata"]["annotations"]["skipstone.dev/maintain"]
            .startswith("Compaction,Manifests/")
        )

    def test_an_object_that_is_deleted_or_of_another_kind_is_refused(self, server: StandIn) -> None:
        going = index()
        going["metadata"]["deletionTimestamp"] = TIME
        server.store(going)
        assert "is being deleted" in sentence(server.run("reindex", "si/by-day"), 2)
        assert "write si/NAME" in sentence(server.run("reindex", "tbl/orders"), 2)

    def test_a_wait_ends_when_time_is_up_or_the_object_is_another(
        self, server: StandIn, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = {"annotations": {"skipstone.dev/reindex": "1"}}
        server.store(stored("SecondaryIndex", "by-day", **asked))
        assert "has not ended after 0 seconds" in server.run("reindex", "si/by-day", "--wait", "--timeout", "0").stderr
        other = stored("SecondaryIndex", "by-day", uid="other", **asked)
        monkeypatch.setattr(
            "time.sleep", lambda _seconds: server.answer(f"{collection('SecondaryIndex')}/by-day", other)
        )
        assert "created again" in server.run("reindex", "si/by-day", "--wait").stderr


class TestKubeconfig:
    def test_files_are_merged_as_kubectl_does(self, server: StandIn, tmp_path: Path) -> None:
        server.store(warehouse())
        away = write_kubeconfig(tmp_path / "away", "http://127.0.0.1:1")
        empty = tmp_path / "empty"
        empty.write_text("")
        first = f"{tmp_path / 'missing'}:{empty}:{server.kubeconfig}:{away}"
        assert server.run("status", KUBECONFIG=first).exit_code == 0
        second = f"{away}:{server.kubeconfig}"
        assert server.run("status", "--context", server.kubeconfig.name, KUBECONFIG=second).exit_code == 0
        assert "cannot be reached" in sentence(server.run("status", KUBECONFIG=second), 3)

    @pytest.mark.parametrize(("text", "says"), [
        ("{", "cannot be read"), ("- a", "is not a kubeconfig"), ("clusters: 7", "is not a kubeconfig"),
        ("contexts: [{nam: a}]", "is not a kubeconfig"), ("current-context: a", "has no context 'a'"),
        ("kind: Config", "no current context"), ("", "no API server is configured"), ("\x00", "cannot be read"),
        ("[" * 3000, "cannot be read"),
        ("{current-context: a, contexts: [{name: a, context: {cluster: b}}]}", "names no cluster with a server"),
    ])  # fmt: skip
    def test_a_broken_file_is_told(self, server: StandIn, tmp_path: Path, text: str, says: str) -> None:
        (tmp_path / "broken").write_text(text)
        assert says in sentence(server.run("status", KUBECONFIG=str(tmp_path / "broken")), 2)

    def test_files_and_contexts_that_do_not_exist_are_told(self, server: StandIn, tmp_path: Path) -> None:
        assert "does not exist" in sentence(server.run("status", "--kubeconfig", str(tmp_path / "no")), 2)
        assert "use one of config" in sentence(server.run("status", "--context", "no"), 2)
        missing = str(tmp_path / "no")
        assert "no API server is configured" in sentence(server.run("status", KUBECONFIG=missing), 2)
        assert "is not a namespace" in sentence(server.run("status", "-n", "../x"), 2)

    @pytest.mark.parametrize(("part", "inner", "says"), [
        ("user", {"as": 7}, "wrong as in user"),
        ("user", {"as": "bot", "as-groups": "devs"}, "wrong as-groups in user"),
        ("user", {"token": 12345}, "wrong token in user"), ("user", 7, "has no fields in user"),
        ("context", {"namespace": 7}, "wrong namespace in context"), ("cluster", {"proxy-url": 7}, "wrong proxy-url"),
        ("cluster", {"server": "://"}, "is not an address"), ("cluster", {"server": "ftp://x"}, "is not an address"),
    ])  # fmt: skip
    def test_what_kubectl_refuses_is_never_taken_for_another_user_or_namespace(
        self, server: StandIn, part: str, inner: Any, says: str
    ) -> None:
        document = yaml.safe_load(server.kubeconfig.read_text())
        entry = document[f"{part}s"][0]
        entry[part] = {**entry[part], **inner} if isinstance(inner, dict) else inner
        server.kubeconfig.write_text(yaml.safe_dump(document))
        assert says in sentence(server.run("status"), 2)
        assert server.requests == []

    def test_a_namespace_may_look_like_a_date(self, server: StandIn) -> None:
        text = server.kubeconfig.read_text().replace("namespace: lake", "namespace: 2026-01-01")
        server.kubeconfig.write_text(text)
        assert "no resource of Skipstone in namespace 2026-01-01" in server.run("status").stderr

    @pytest.mark.parametrize("path", ["~nobody-has-this-name/config", "a" * 5000])
    def test_paths_that_lead_nowhere_are_told(self, server: StandIn, path: str) -> None:
        assert "no API server is configured" in sentence(server.run("status", KUBECONFIG=path), 2)
        assert "correct --kubeconfig" in sentence(server.run("status", "--kubeconfig", path), 2)

    @pytest.mark.parametrize("cluster", [
        {"certificate-authority": "gone.pem"}, {"certificate-authority-data": "%%%"},
        {"certificate-authority-data": "bm9uZQ=="},
    ])  # fmt: skip
    def test_certificates_that_cannot_be_used_are_told(
        self, server: StandIn, tmp_path: Path, cluster: dict[str, str]
    ) -> None:
        config = write_kubeconfig(tmp_path / "tls", server.url.replace("http:", "https:"), **cluster)
        result = server.run("status", KUBECONFIG=str(config))
        assert sentence(result, result.exit_code)
        assert result.exit_code in (2, 3)

    def test_a_server_without_tls_is_told(self, server: StandIn, tmp_path: Path) -> None:
        config = write_kubeconfig(tmp_path / "tls", server.url.replace("http:", "https:"))
        assert "certificate" in sentence(server.run("status", KUBECONFIG=str(config)), 3)

    def test_a_credential_plugin_gives_a_token_or_a_sentence(self, server: StandIn, tmp_path: Path) -> None:
        said = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": "secret"},
        }
        for command, code, says in (
            (["echo", json.dumps(said)], 0, ""),
            (["false"], 2, "returned 1"),
            (["/no/such/plugin"], 2, "No such file"),
            (["echo", "no json"], 2, "gave no credentials"),
        ):
            plugin = {"apiVersion": said["apiVersion"], "command": command[0], "args": command[1:]}
            config = write_kubeconfig(tmp_path / "plugin", server.url, {"exec": plugin})
            server.store(warehouse())
            result = server.run("status", KUBECONFIG=str(config))
            assert (result.exit_code, says in result.stderr) == (code, True), result.stderr
        assert ("Authorization", "Bearer secret") in server.requests[0].headers

    def test_paths_are_relative_to_their_file_and_tokens_lose_their_line_end(
        self, server: StandIn, tmp_path: Path
    ) -> None:
        (tmp_path / "deep").mkdir()
        (tmp_path / "deep" / "token").write_text("from-file\n")
        plugin = tmp_path / "deep" / "plugin"
        said = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "ours"}}
        plugin.write_text(f"#!/bin/sh\necho '{json.dumps(said)}'\n")
        plugin.chmod(0o755)
        runs = {"apiVersion": said["apiVersion"], "command": "./plugin"}
        for user, token in (({"tokenFile": "token", "token": "old"}, "from-file"), ({"exec": runs}, "ours")):
            config = write_kubeconfig(tmp_path / "deep" / "config", server.url, user)
            assert server.run("status", KUBECONFIG=str(config)).exit_code == 0
            assert ("Authorization", f"Bearer {token}") in server.requests[-1].headers

    def test_an_address_without_scheme_is_one_of_http(self, server: StandIn, tmp_path: Path) -> None:
        config = write_kubeconfig(tmp_path / "short", server.url.removeprefix("http://"))
        assert server.run("status", KUBECONFIG=str(config)).exit_code == 0

    def test_a_user_that_is_missing_is_told(self, server: StandIn) -> None:
        document = yaml.safe_load(server.kubeconfig.read_text())
        server.kubeconfig.write_text(yaml.safe_dump({**document, "users": []}))
        assert "names user 'config', which the kubeconfig lacks" in sentence(server.run("status"), 2)

    def test_whom_to_act_as_is_said_in_headers(self, server: StandIn, tmp_path: Path) -> None:
        server.run("status", "--as", "jane", "--as-group", "devs", "--as-group", "ops")
        user = {
            "as": "bot",
            "as-uid": "7",
            "as-groups": ["a", "b"],
            "as-user-extra": {"scopes": ["view"], "a.b/c": ["edit"]},
        }
        acting = write_kubeconfig(tmp_path / "acting", server.url, user)
        server.run("status", KUBECONFIG=str(acting))
        server.run("status", "--as", "jane", KUBECONFIG=str(acting))
        found = [[pair for pair in one.headers if pair[0].startswith("Impersonate")] for one in server.requests]
        assert found[0] == [("Impersonate-User", "jane"), ("Impersonate-Group", "devs"), ("Impersonate-Group", "ops")]
        assert found[len(KINDS)] == [
            ("Impersonate-User", "bot"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"),
            ("Impersonate-Uid", "7"), ("Impersonate-Extra-a.b%2Fc", "edit"), ("Impersonate-Extra-scopes", "view"),
        ]  # fmt: skip
        assert found[-1] == [("Impersonate-User", "jane")]
        server.run("status", "--as", "Jané")
        assert ("Impersonate-User", "Jané".encode().decode("latin-1")) in server.requests[-1].headers
        assert "remove the control characters" in sentence(server.run("status", "--as", "a\r\nX: y"), 2)
        assert "add --as USER" in sentence(server.run("status", "--as-group", "devs"), 2)


class TestPrograms:
    def start(self, server: StandIn, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "NO_COLOR": "1"}
        # What a shell starts in the background ignores interrupts, and so does what that starts.
        command = ["env", "--default-signal=INT", sys.executable, "-m", "skipstone_cli", *arguments]
        return subprocess.Popen(command, env=environment, **more)

    def test_a_closed_pipe_ends_it_in_silence(self, server: StandIn) -> None:
        server.store(warehouse(), *(table(f"t{number}") for number in range(3000)))
        with self.start(server, "status", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
            assert program.stdout is not None and program.stderr is not None
            assert program.stdout.readline() == b"wh/lake  Ready  pvc/lake\n"
            program.stdout.close()
            assert (program.stderr.read(), program.wait(60)) == (b"", 0)

    def test_an_interrupt_ends_it_in_silence(self, server: StandIn) -> None:
        server.store(job("MergeJob", "m", READY))
        pending = driver("p1", "uid-m", state="waiting", phase="Pending")
        server.answer(core("pods"), listing("Pod", [pending]))
        with self.start(server, "logs", "mj/m", "--follow", stderr=subprocess.PIPE) as program:
            assert program.stderr is not None
            assert b"has not started" in program.stderr.readline()
            program.send_signal(signal.SIGINT)
            assert (program.stderr.read(), program.wait(60)) == (b"", 130)

    def test_output_that_cannot_be_written_is_told(self, server: StandIn) -> None:
        server.store(warehouse())
        with (
            Path("/dev/full").open("wb") as full,
            self.start(server, "status", stdout=full, stderr=subprocess.PIPE) as program,
        ):
            assert program.stderr is not None
            assert program.stderr.read().startswith(b"skipstone: the output cannot be written: ")
            assert program.wait(60) == 2

    @pytest.mark.parametrize("argument", ["--help", "--version"])
    def test_help_that_cannot_be_written_is_told(self, server: StandIn, argument: str) -> None:
        with (
            Path("/dev/full").open("wb") as full,
            self.start(server, argument, stdout=full, stderr=subprocess.PIPE) as program,
        ):
            assert program.stderr is not None
            said = program.stderr.read()
            assert said.startswith(b"skipstone: the output cannot be written: ") and said.count(b"\n") == 1
            assert program.wait(60) == 2

    def test_output_of_any_language_is_printed_in_any_encoding(self, server: StandIn) -> None:
        server.store(warehouse("lake", condition("Ready", "False", "CheckFailed", "le café est fermé 日本")))
        environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "PYTHONIOENCODING": "ascii"}
        done = subprocess.run(
            [sys.executable, "-m", "skipstone_cli", "status"], env=environment, capture_output=True, check=True
        )
        assert b"caf\\xe9" in done.stdout


def test_what_can_have_no_name_does_not_exist(server: StandIn) -> None:
    missing = condition("Progressing", "False", "TableNotFound", "there is no such Table")
    server.store(stored("LoadJob", "odd", {"tableRef": {"name": "a..b"}}, {"conditions": [missing]}))
    result = server.run("why", "lj/odd")
    assert (result.exit_code, "tbl/a..b does not exist" in result.stdout) == (0, True)
    assert "TableNotFound" in result.stdout


def test_the_json_of_status_has_the_documented_shape(server: StandIn) -> None:
    server.store(warehouse(), table("orders", READY, rows=5), index("by-day", READY, synced="1/1"))
    document = json.loads(server.run("status", "-o", "json").stdout)
    assert {name: document[name] for name in ("apiVersion", "kind")} == {
        "apiVersion": "cli.skipstone.dev/v1", "kind": "Status",
    }  # fmt: skip
    orders = document["items"][0]["children"][0]
    by_day = orders.pop("children")[0]
    assert orders == {
        "kind": "Table", "namespace": "lake", "name": "orders", "found": True, "state": "Ready", "reason": "Checked",
        "message": "fine", "details": {"rows": 5},
    }  # fmt: skip
    assert by_day["details"] == {"synced": "1/1"}
    assert "use text or json" in sentence(server.run("status", "-o", "yaml"), 2)


def test_the_json_of_why_has_the_documented_shape(server: StandIn) -> None:
    server.store(job("LoadJob", "l", condition("Failed", "True", "BadRecords", "row 7")), table(), warehouse())
    events = [
        {"metadata": {"name": name}, "type": "Warning", "reason": name, "message": "m", **times}
        for name, times in (
            ("late", {"series": {"count": 4, "lastObservedTime": "2026-01-03T00:00:00.5Z"}}),
            ("early", {"lastTimestamp": "2026-01-01T00:00:00Z", "count": 2}),
            ("middle", {"eventTime": "2026-01-02T00:00:00.000000Z", "lastTimestamp": None}),
        )
    ]
    server.answer(core("events"), listing("Event", events))
    result = server.run("why", "lj/l", "-o", "json")
    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert document.keys() == {
        "apiVersion", "kind", "objectKind", "namespace", "name", "state", "failed", "reason", "meaning", "message",
        "whatToDo", "leftOut", "inProgress", "specChangedSince", "waitsFor", "events", "log", "missingRights",
    }  # fmt: skip
    assert [(one["reason"], one["count"]) for one in document["events"]] == [("early", 2), ("middle", 1), ("late", 4)]
    assert document["log"] == {"pod": "", "attempt": 0, "lines": [], "note": "no driver pod is left"}
    assert server.requests[-1].query["fieldSelector"] == "involvedObject.uid=uid-l"


def test_why_tells_what_the_replicas_of_a_planning_server_wait_for(server: StandIn) -> None:
    def pods(request: Request) -> Reply:
        selected = dict(part.split("=") for part in request.query["labelSelector"].split(","))
        if selected.get("app.kubernetes.io/component") != "planning":
            return Reply(listing("Pod", []))
        assert selected["skipstone.dev/warehouse-uid"] == "uid-lake"
        unready = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node has room"}
        ]
        return Reply(listing("Pod", [{"metadata": {"name": "lake-planning-1"}, "status": {"conditions": unready}}]))

    server.store(warehouse("lake", READY, condition("PlanningReady", "False", "ReplicasPending", "0 of 2 are ready")))
    server.answers[core("pods")] = pods
    told = server.run("why", "wh/lake").stdout
    assert "ReplicasPending" in told
    assert "pod lake-planning-1 of the planning server: Unschedulable: no node has room" in " ".join(told.split())


def test_why_tells_what_a_complete_merge_left_out(server: StandIn) -> None:
    said = (
        "1 changes cannot be applied. The first: 'feeds/1.json', line 2: column 'seen': infinity: set source.infinity"
    )
    left = {"rows": {"rejected": 1, "waiting": 2}, "rejectedPath": ".skipstone/rejected/u/r"}
    found = job("MergeJob", "m", condition("Complete", "True", "Committed", said), **left)
    found["spec"]["source"] = {"changeFormat": "Debezium"}
    server.store(found, table(), warehouse())
    result = server.run("why", "mj/m")
    assert result.exit_code == 0
    shown = " ".join(result.stdout.split())
    assert "'feeds/1.json', line 2: column 'seen'" in shown and "set source.infinity" in shown
    assert "Left out 1 rows that do not fit, 2 that wait for a missing change: .skipstone/rejected/u/r" in shown
    assert "merge the files again with source.onlyRejected" in shown


def test_completion_and_version_need_no_cluster(server: StandIn) -> None:
    assert server.run("--version").stdout.startswith("skipstone ")
    completed = server.run(_SKIPSTONE_COMPLETE="complete_bash", COMP_WORDS="skipstone sta", COMP_CWORD="1")
    assert "status" in completed.stdout
    assert server.requests == []
    assert yaml.safe_load(server.kubeconfig.read_text())["current-context"] == "config"

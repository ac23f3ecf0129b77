"""Serves a root folder, or finds the server that does: the lock, the address, the token, the kubeconfig."""

from __future__ import annotations

import base64
import fcntl
import os
import secrets
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
import yaml

from skipstone_local.admission import Admission
from skipstone_local.owners import make_folder, require_own
from skipstone_local.places import RootFolder, find_root
from skipstone_local.server.app import build_app
from skipstone_local.server.certificates import ensure_certificate, write_private
from skipstone_local.store import Store

LOOPBACK = "127.0.0.1"
NAME = "skipstone-local"
#: Seconds to wait for a server that has just started.
PATIENCE = 30.0
PAUSE = 0.05


class AlreadyServed(OSError):
    """Another process serves the root folder."""


class NotServed(OSError):
    """The server of the root folder does not answer; the text says what to do."""


@dataclass(frozen=True)
class Address:
    """Where a server is and what it wants to see."""

    port: int
    token: str

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"https://{LOOPBACK}:{self.port}"


@contextmanager
def opened(root: Path) -> Iterator[Path]:
    """Give a kubeconfig of a server of the root folder: one that runs, else one in this process until the end.

    Raises NotServed, ForeignLayout, OSError.
    """
    folder = find_root(root)
    try:
        with serving(folder.path) as kubeconfig:
            yield kubeconfig
            return
    except AlreadyServed:
        _wait_until_served(folder)
    yield folder.kubeconfig


@contextmanager
def serving(root: Path) -> Iterator[Path]:
    """Serve the root folder in a thread until the end; gives the kubeconfig.

    The port and the token stay those of the server before, if the port is free: drivers that outlived it go on.
    Raises AlreadyServed, UnfitFolder, ForeignLayout, OSError.
    """
    folder = find_root(root)
    require_own(folder)
    make_folder(folder)
    with _locked(folder.lock):
        ensure_certificate(folder)
        before = read_address(folder.kubeconfig)
        with closing(Store(folder.objects)) as store, closing(_listen(before.port if before else 0)) as listener:
            address = Address(listener.getsockname()[1], before.token if before else secrets.token_urlsafe(32))
            with _running(store, folder, address, listener):
                _write_kubeconfig(folder, address)
                yield folder.kubeconfig


def serve(root: Path) -> None:
    """Serve the root folder until SIGINT or SIGTERM. Raises as ``serving``."""
    import signal

    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with serving(root):
        while not ended.wait(1.0):
            pass


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of the root folder, which ends with the process. Raises AlreadyServed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyServed(str(path)) from error
        yield
    finally:
        os.close(descriptor)


def _listen(port: int) -> socket.socket:
    """A socket on the loopback address: on this port, else on any that is free."""
    for wanted in (port, 0):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, wanted))
            listener.listen(128)
        except OSError:
            listener.close()
            if wanted == 0:
                raise
        else:
            return listener
    raise AssertionError


@contextmanager
def _running(store: Store, folder: RootFolder, address: Address, listener: socket.socket) -> Iterator[None]:
    app = build_app(store, Admission.load(), address.token, folder.path / "pods")
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
        lifespan="on",
        ws="none",
        ssl_certfile=folder.certificate,
        ssl_keyfile=folder.certificate,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="skipstone-local-server", daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise NotServed(f"the server of {folder.path} ended while it started: see what was logged")
            time.sleep(PAUSE)
        yield
    finally:
        app.state.end_streams()
        server.should_exit = True
        thread.join()


def read_address(kubeconfig: Path) -> Address | None:
    """The address in a kubeconfig that a server wrote, or None."""
    try:
        document = yaml.safe_load(kubeconfig.read_text())
        port = int(document["clusters"][0]["cluster"]["server"].rpartition(":")[2])
        return Address(port, str(document["users"][0]["user"]["token"]))
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, yaml.YAMLError):
        return None


def _write_kubeconfig(folder: RootFolder, address: Address) -> None:
    authority = base64.b64encode(folder.authority.read_bytes()).decode()
    cluster = {"server": address.url, "certificate-authority-data": authority}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": address.token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
        "current-context": NAME,
    }
    write_private(folder.kubeconfig, yaml.safe_dump(content, sort_keys=False).encode())


def _wait_until_served(folder: RootFolder) -> None:
    """Return when the server of the folder answers. Raises NotServed."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        address = read_address(folder.kubeconfig)
        if address is not None and _answers(folder, address):
            return
        time.sleep(PAUSE)
    raise NotServed(f"a process holds {folder.lock}, and no server answers: end that process, then try again")


def _answers(folder: RootFolder, address: Address) -> bool:
    request = urllib.request.Request(f"{address.url}/readyz", headers={"Authorization": f"Bearer {address.token}"})
    try:
        context = ssl.create_default_context(cafile=str(folder.authority))
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False

"""Counts what is sent to the JVM of a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from py4j.clientserver import ClientServerConnection
from py4j.protocol import MEMORY_COMMAND_NAME, MEMORY_DEL_SUBCOMMAND_NAME

_GIVEN_BACK = f"{MEMORY_COMMAND_NAME}{MEMORY_DEL_SUBCOMMAND_NAME}"


@contextmanager
def counted_calls() -> Iterator[list[str]]:
    """What is sent meanwhile, but for objects given back, which Python's garbage collector does at any moment."""
    sent: list[str] = []
    real = ClientServerConnection.send_command

    def send(self: ClientServerConnection, command: str) -> str:
        if not command.startswith(_GIVEN_BACK):
            sent.append(command)
        return str(real(self, command))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClientServerConnection, "send_command", send)
        yield sent

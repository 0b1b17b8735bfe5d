"""Count the containers that an engine has at once, by what the engine tells of each."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from http.client import HTTPException
from typing import Self
from urllib.parse import quote

from docker_engine import EngineApi

FILTERS = {"type": ["container"], "event": ["create", "destroy"]}


class ContainerWatch:
    """Counts the containers of an engine as long as it is open.

    Args:
        api: the engine.
        label: of those that count.
    """

    def __init__(self, api: EngineApi, label: str) -> None:
        filters = quote(json.dumps(FILTERS | {"label": [label]}))
        self._connection, self._answer = api.stream(f"/events?filters={filters}")
        self._changed = threading.Condition()
        self._now = self._most = 0
        self._thread = threading.Thread(target=self._read, name="container watch")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)
        self._answer.close()
        self._connection.close()

    def peak(self, limit_s: float) -> int:
        """Return how many there were at once, when all are gone.

        Raises:
            TimeoutError: they are not, within the limit.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._now == 0, limit_s):
                raise TimeoutError(f"{self._now} containers are left")
            return self._most

    def _read(self) -> None:
        with contextlib.suppress(OSError, HTTPException, ValueError):  # closed by us, or with the engine
            for line in self._answer:
                action = json.loads(line)["Action"]
                with self._changed:
                    self._now += 1 if action == "create" else -1
                    self._most = max(self._most, self._now)
                    self._changed.notify_all()

"""The connection of this process to Ray that was made here: one at a time, also if nobody waits for it any more."""

from __future__ import annotations

import concurrent.futures
import os
import threading
from typing import Any, ClassVar

from arl_tangram.integrations.ray.naming import NAMESPACE

KEPT_S = 60.0
"""For how long a connection is kept at least that has come when nobody waited for it any more."""
_LEAVE_S = 10.0
"""For Ray to disconnect; it has no limit of its own."""
CONNECTING = threading.Lock()
"""Held by who connects or disconnects."""


class Connection:
    """A connection to Ray, on a thread of its own.

    A cluster that is started for this process ends with the thread that has started it (Ray asks the kernel for that,
    which goes by threads), so this one lives as long as the connection.
    """

    _present: ClassVar[Connection | None] = None
    _late: ClassVar[Connection | None] = None
    """One that nobody waits for any more, and that may come all the same."""

    def __init__(self, ray: Any, address: str | None) -> None:
        self._ray = ray
        self._address = address
        self._opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._over = threading.Event()
        self._users = 0
        self._thread = threading.Thread(target=self._run, name="arl_tangram ray connection", daemon=True)

    def open(self, limit_s: float | None) -> None:
        """Connect, for the first that uses it, or wait on for that.

        Raises:
            TimeoutError: that takes too long; it goes on.
        """
        if self._thread.ident is None:
            self._thread.start()
        if not concurrent.futures.wait([self._opened], limit_s).done:
            Connection._late = self
            where = os.environ.get("RAY_ADDRESS") or "the address that `ray start` has left"
            text = f"that at {where} did not answer within {limit_s:g} s"
            raise TimeoutError(f"{text}; if it is dead, `ray stop` on this machine forgets it")
        Connection._late = None
        self._opened.result()
        self._users = 1
        Connection._present = self

    @classmethod
    def late(cls) -> Connection | None:
        """Return the one that nobody waits for; if it has failed meanwhile, it is forgotten."""
        if (late := cls._late) is not None and late._opened.done() and late._opened.exception() is not None:
            cls._late = None
        return cls._late

    @classmethod
    def join(cls) -> Connection | None:
        """Use the connection of this process, unless it is the program's own."""
        if cls._present is not None:
            cls._present._users += 1
        return cls._present

    def leave(self) -> None:
        """Use it no more; the last one disconnects, and ends a cluster that was started for it."""
        self._users -= 1
        if self._users == 0:
            Connection._present = None
            self._over.set()
            self._thread.join(_LEAVE_S)

    def _run(self) -> None:
        try:
            self._ray.init(address=self._address, namespace=NAMESPACE)
        except BaseException as error:  # noqa: BLE001 - raised by who waits
            self._opened.set_exception(error)
            return
        self._opened.set_result(None)
        while not self._over.wait(KEPT_S):
            if self._is_let_go():
                return
        self._ray.shutdown()

    def _is_let_go(self) -> bool:
        """Disconnect if it has come late, and nobody has asked for it since."""
        if not CONNECTING.acquire(blocking=False):  # somebody asks, or leaves
            return False
        try:
            if Connection._late is not self:
                return False
            Connection._late = None
            self._ray.shutdown()  # while nobody can take it for one of the program's own
            return True
        finally:
            CONNECTING.release()

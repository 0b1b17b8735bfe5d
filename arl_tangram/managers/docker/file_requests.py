"""What a daemon is asked for about the files of its containers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable

from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.calls import ARCHIVE_S, QUICK_S
from arl_tangram.managers.docker.connection import Connection
from arl_tangram.managers.docker.source import Source


class FileRequests(ABC):
    """The part of `Engine` that is about files."""

    @property
    @abstractmethod
    def _connection(self) -> Connection:
        """The open connection; raises DaemonError if there is none."""

    async def put_archive(
        self, container_id: str, path: str, chunks: AsyncIterable[bytes], *, timeout_s: float = ARCHIVE_S
    ) -> None:
        """Unpack a tar stream below a folder of a container, which must be there.

        Raises:
            DaemonError: it failed, or a folder would replace something else, or something else a folder.
            Exception: what iterating over the chunks raised.
        """
        source = Source(chunks)
        try:
            await self._connection.json(
                "put_archive", "PUT", f"containers/{container_id}/archive",
                params={"path": path, "noOverwriteDirNonDir": "1"}, content=source, timeout_s=timeout_s,
            )  # fmt: skip
        except DaemonError:
            source.check()
            raise

    def get_archive(self, container_id: str, path: str, *, timeout_s: float = QUICK_S) -> AsyncGenerator[bytes, None]:
        """Return a tar stream of a file or folder of a container; in `contextlib.aclosing` unless read to its end.

        Args:
            container_id: which one.
            path: what to get; the names in the stream begin with the last part of it.
            timeout_s: deadline for each piece.
        """
        return self._connection.chunks(
            "get_archive", f"containers/{container_id}/archive", params={"path": path}, timeout_s=timeout_s
        )

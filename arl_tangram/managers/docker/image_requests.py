"""What a daemon is asked for about images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable

from arl_tangram.managers.docker.answers import DaemonError, ImageConfig, read_image
from arl_tangram.managers.docker.calls import ARCHIVE_S, QUICK_S, SLOW_S
from arl_tangram.managers.docker.connection import Connection
from arl_tangram.managers.docker.failures import understood
from arl_tangram.managers.docker.naming import quoted, split_reference
from arl_tangram.managers.docker.source import Source


class ImageRequests(ABC):
    """The part of `Engine` that is about images."""

    @property
    @abstractmethod
    def _connection(self) -> Connection:
        """The open connection; raises DaemonError if there is none."""

    async def has_image(self, ref: str, *, timeout_s: float = QUICK_S) -> bool:
        """Return whether the daemon has an image."""
        path = f"images/{quoted(ref)}/json"
        return await self._connection.json("image", "GET", path, timeout_s=timeout_s, accept=(404,)) is not None

    async def image_config(self, ref: str, *, timeout_s: float = QUICK_S) -> ImageConfig:
        """Return what an image says about its containers."""
        path = f"images/{quoted(ref)}/json"
        return understood(read_image, await self._connection.json("image", "GET", path, timeout_s=timeout_s))

    async def pull(self, ref: str, *, auth: str = "", timeout_s: float = ARCHIVE_S) -> None:
        """Get an image from its registry.

        Args:
            ref: its name; without a tag or digest, the tag `latest`.
            auth: what the header X-Registry-Auth is to say; empty for nothing.
            timeout_s: the deadline.
        """
        name, tag = split_reference(ref)
        headers = {"X-Registry-Auth": auth} if auth else None
        params = {"fromImage": name} | ({"tag": tag} if tag else {})
        await self._connection.progress("pull", "images/create", params=params, headers=headers, timeout_s=timeout_s)

    async def import_image(self, chunks: AsyncIterable[bytes], ref: str, *, timeout_s: float = ARCHIVE_S) -> None:
        """Make an image of a tar stream of its files."""
        source = Source(chunks)
        name, tag = split_reference(ref)
        try:
            await self._connection.progress(
                "import", "images/create", params={"fromSrc": "-", "repo": name, "tag": tag}, content=source,
                timeout_s=timeout_s,
            )  # fmt: skip
        except DaemonError:
            source.check()
            raise

    async def remove_image(self, ref: str, *, timeout_s: float = SLOW_S) -> None:
        """Remove an image; one that is not there is no error."""
        path = f"images/{quoted(ref)}"
        await self._connection.json("remove_image", "DELETE", path, timeout_s=timeout_s, accept=(404,))

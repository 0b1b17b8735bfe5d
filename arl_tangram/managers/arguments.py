"""Check what agents' tools hand to a sandbox, which is often not what the types say."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any, cast


def check_command(argv: object, stdin: object, env: object, timeout: object, max_output_bytes: object) -> None:
    """Check the arguments of `Sandbox.exec`.

    Raises:
        TypeError: one is of another type.
        ValueError: an empty `argv`, a zero byte, or a limit that is not positive.
    """
    words = list(cast(Sequence[object], argv)) if isinstance(argv, Sequence) else [None]
    if isinstance(argv, (str, bytes)) or not all(isinstance(word, str) for word in words):
        raise TypeError(f"argv must be a list of strings, no shell is involved: {argv!r}")
    if not words or not words[0]:
        raise ValueError("argv is empty: a program is needed")
    if not isinstance(stdin, (bytes, bytearray, memoryview)):
        raise TypeError(f"stdin takes bytes, not {type(stdin).__name__}")
    pairs = list(cast(Mapping[object, object], env).items()) if isinstance(env, Mapping) else []
    texts = [*words, *(text for pair in pairs for text in pair)]
    if (env is not None and not isinstance(env, Mapping)) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"env takes {{name: text}}, not {env!r}")
    if any("\0" in str(text) for text in texts):
        raise ValueError("a zero byte in argv or env")
    if any("=" in str(name) or not name for name, _ in pairs):
        raise ValueError("an empty name or '=' in the name of a variable")
    if timeout is not None and not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout takes seconds, a number, or None, not {timeout!r}")
    if timeout is not None and (isinstance(timeout, bool) or not timeout > 0):
        raise ValueError(f"timeout must be positive, not {timeout!r}")
    if isinstance(max_output_bytes, bool) or not isinstance(max_output_bytes, int) or max_output_bytes <= 0:
        raise ValueError(f"max_output_bytes must be a positive whole number, not {max_output_bytes!r}")


def check_path(path: object, called: str = "path") -> None:
    """Check a path in a sandbox.

    Raises:
        TypeError: it is no string.
        ValueError: it holds a zero byte.
    """
    if not isinstance(path, str):
        raise TypeError(f"{called} must be a string, not {path!r}")
    if "\0" in path:
        raise ValueError(f"a zero byte in {called}: {path!r}")


def check_host_path(path: object, called: str) -> None:
    """Check a path of this machine; raises TypeError if it is none."""
    if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(cast("os.PathLike[Any]", path)), bytes):
        raise TypeError(f"{called} must be a string or a path, not {path!r}")


def check_max_bytes(max_bytes: object) -> None:
    """Check how long a file may be; raises ValueError if that is no whole number of bytes."""
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 0:
        raise ValueError(f"max_bytes must be a whole number, at least 0, not {max_bytes!r}")


def check_folder(real: str | os.PathLike[str], named: str | os.PathLike[str]) -> os.stat_result:
    """Return what a path of this machine leads to, which must be a folder; blocks.

    Args:
        real: where it is.
        named: what the caller calls it.

    Raises:
        FileNotFoundError: there is nothing.
        NotADirectoryError: it is something else.
        OSError: it cannot be looked at.
    """
    try:
        found = os.stat(real)
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or errno.EIO), os.fspath(named)) from error
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(named))
    return found

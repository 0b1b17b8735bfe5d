"""Check what agents' tools hand to a sandbox, which is often not what the types say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast


def check_command(argv: object, stdin: object, env: object, timeout: float | None, max_output_bytes: object) -> None:
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
    if timeout is not None and (isinstance(timeout, bool) or not timeout > 0):
        raise ValueError(f"timeout must be positive, not {timeout!r}")
    if isinstance(max_output_bytes, bool) or not isinstance(max_output_bytes, int) or max_output_bytes <= 0:
        raise ValueError(f"max_output_bytes must be a positive whole number, not {max_output_bytes!r}")

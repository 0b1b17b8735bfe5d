"""The extra `gpu`: whether torch is there."""

from __future__ import annotations

import importlib

from arl_tangram.errors import MissingExtraError


def need_torch() -> None:
    """Check that torch can be imported; it blocks for seconds the first time.

    Raises:
        MissingExtraError: it is not installed; the message names the extra that brings it.
    """
    try:
        importlib.import_module("torch")
    except ImportError as error:
        raise MissingExtraError(
            "GPU services need torch, which is not installed: pip install 'arl-tangram[gpu]'"
        ) from error

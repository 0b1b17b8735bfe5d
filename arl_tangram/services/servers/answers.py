"""What servers answer, as JSON: looked at, never trusted. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast


def aborted(answer: object) -> bool:
    """Whether an answer, though a success by its status, was cut off by the server.

    vLLM and SGLang end what they abort with status 200 and a reason to finish of `abort`: as text in `choices`, or as
    `{"type": "abort"}` in SGLang's own format.
    """
    answers = entries(answer)
    return any(_is_cut_off(each) for each in (answers if answers is not None else [answer]))


def _is_cut_off(answer: object) -> bool:
    found = fields(answer)
    if found is None:
        return False
    endings = [found.get("meta_info"), *(entries(found.get("choices")) or [])]
    for ending in filter(None, map(fields, endings)):
        reason = ending.get("finish_reason")
        detail = fields(reason)
        if (reason if detail is None else detail.get("type")) == "abort":
            return True
    return False


def fields(value: object) -> Mapping[str, object] | None:
    """Return it if it is a JSON object."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else None


def entries(value: object) -> Sequence[object] | None:
    """Return it if it is a JSON array."""
    return (
        cast("Sequence[object]", value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else None
    )

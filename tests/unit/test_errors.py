"""Every kind of error has a verdict: whether a call is tried again, whether a backend is to blame; and each travels."""

from __future__ import annotations

import pickle

import pytest

from arl_tangram import errors
from arl_tangram.managers.breakers import NOT_THE_BACKEND
from arl_tangram.retrying import NEVER

KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.TangramError) and kind.__module__ == errors.__name__
}
# Tried again, if the action's `retry_on` has it.
AGAIN = {
    "AllocationError", "BodyExitedError", "ConfigurationError", "ConfigurationMismatchError", "DefinitionError",
    "InfrastructureError", "LeaseLostError", "MissingExtraError", "NodeLostError", "OutOfMemoryError", "OwnerLostError",
    "RemoteError", "RestoreError", "ResultError", "RunTimeout",
    "SandboxLostError", "SandboxPathError", "SandboxStartError", "ServiceLostError", "TangramError",
    "TraceFormatError", "WorkerDiedError", "WorkerStartError",
}  # fmt: skip
# What a quota's breaker counts as a failure of what is behind the quota: the rest is ours, the body's or the caller's.
BACKENDS = {"InfrastructureError", "MissingExtraError", "RemoteError", "RunTimeout", "TangramError", "TraceFormatError"}


@pytest.mark.parametrize("name", sorted(KINDS))
def test_an_error_is_retried_or_never(name: str) -> None:
    assert issubclass(KINDS[name], NEVER) == (name not in AGAIN)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_an_error_is_blamed_on_the_backend_or_not(name: str) -> None:
    assert issubclass(KINDS[name], NOT_THE_BACKEND) == (name not in BACKENDS)


def test_no_verdict_is_left_over() -> None:
    assert set(KINDS) >= AGAIN | BACKENDS


@pytest.mark.parametrize("name", sorted(KINDS))
def test_an_error_crosses_to_another_process_as_itself(name: str) -> None:
    arguments = ("ValueError", "why", "where") if KINDS[name] is errors.RemoteError else ("what, why and which",)
    error = KINDS[name](*arguments)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is KINDS[name]
    assert str(again) == str(error)
    assert again.args == error.args

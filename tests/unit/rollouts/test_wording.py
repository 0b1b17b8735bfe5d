"""Models read results as text, and errors in short texts; trainers are told which errors mask a sample."""

from __future__ import annotations

from typing import Any

import pytest

from arl_tangram import errors
from arl_tangram.integrations.rollouts import is_masked, text_of, words_for
from arl_tangram.integrations.rollouts.wording import infrastructure_error, is_own


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("a text", "a text"),
        ("", ""),
        ({"found": ["ä", 1, None]}, '{"found": ["ä", 1, null]}'),
        (3.5, "3.5"),
        (None, "null"),
        ({1}, "{1}"),
        (ValueError("as it is"), "as it is"),
        ("a file \udcff", "a file ?"),
        (["\ud800"], '["?"]'),
    ],
    ids=str,
)
def test_results_become_texts(result: Any, text: str) -> None:
    assert text_of(result) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.RunTimeout("m:f ran longer than its timeout of 3 s"), "sh ran for too long and was stopped"),
        (errors.ArgumentsError("wrong arguments for sh: 'c' is missing"), "wrong arguments for sh: 'c' is missing"),
        (errors.OutOfMemoryError("1 GiB, pid 7"), "sh ran out of memory"),
        (errors.BodyExitedError("pid 7", exit_code=1), "sh ended without a result"),
        (errors.BodyCancelledError("x"), "sh ended without a result"),
        (errors.ResultError("x"), "sh returned what cannot be shown"),
        (errors.RemoteError("MyError", "my\ntext", "Traceback"), "sh failed: MyError: my text"),
        (errors.SandboxPathError("'../x' leaves the sandbox"), "sh failed: '../x' leaves the sandbox"),
        (errors.SandboxLostError("container 7f is gone"), "sh is not available"),
        (ValueError("no"), "sh failed: ValueError: no"),
        (ValueError(), "sh failed: ValueError"),
        (ValueError("x" * 10_000), "sh failed: ValueError: " + "x" * 300 + "…"),
    ],
    ids=lambda given: given[:40] if isinstance(given, str) else type(given).__name__,
)
def test_errors_become_short_texts(error: Exception, text: str) -> None:
    assert words_for(error, "sh") == f"Error: {text}"


class CannotSay(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_that_has_no_text_is_told_by_its_class() -> None:
    assert words_for(CannotSay(), "sh") == "Error: sh failed: CannotSay"


def test_what_a_model_is_told_can_be_written_as_utf_8() -> None:
    assert words_for(ValueError("\ud800"), "sh") == "Error: sh failed: ValueError: ?"


class FromRay(Exception):
    """As `RayTaskError` does, it has what it wraps as `cause`."""

    def __init__(self, cause: object) -> None:
        super().__init__("task failed")
        self.cause = cause


def test_what_the_infrastructure_did_is_masked_and_all_else_is_not() -> None:
    lost = errors.SandboxLostError("gone")
    assert infrastructure_error(FromRay(FromRay(lost))) is lost
    assert is_masked(lost)
    assert is_masked(errors.QueueTimeout("late"))
    unmasked = [errors.RunTimeout("long"), errors.OutOfMemoryError("x"), errors.UsageError("x"), ValueError("x")]
    for error in [*unmasked, FromRay(ValueError("x")), FromRay("text")]:
        assert not is_masked(error)
    looped = FromRay(None)
    looped.cause = looped
    assert not is_masked(looped)
    looped.cause = FromRay(looped)
    assert not is_masked(looped), "it would be looked at for ever"


def test_every_error_is_masked_or_told_to_the_model_or_raised() -> None:
    """What is declared or used in a wrong way must end the training, not be told to the model."""
    tree = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.TangramError)]
    made = [one("a", "b", "c") if one is errors.RemoteError else one("a") for one in tree]
    raised = {type(one) for one in made if not is_masked(one) and not is_own(one)}
    told = {type(one) for one in made if is_own(one)}
    assert not any(is_masked(one) for one in made if is_own(one))
    assert {errors.InfeasibleError, errors.ConfigurationError, errors.RuntimeClosedError} <= raised
    assert {errors.RunTimeout, errors.OutOfMemoryError, errors.ArgumentsError} <= told
    assert is_own(ValueError())

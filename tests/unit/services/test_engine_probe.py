"""A question with a known answer, and what counts as the same answer."""

from __future__ import annotations

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.services.engine.probe import Probe, difference
from arl_tangram.services.servers.answers import aborted


def completion(text: str = "Paris", logprob: float = -0.25, **more: object) -> dict[str, object]:
    return {"choices": [{"text": text, "logprobs": {"token_logprobs": [logprob]}, "finish_reason": "length"}], **more}


def test_the_same_answer_may_have_another_id_time_and_rounding() -> None:
    known = completion(id="a", created=1, usage={"total_tokens": 5})
    assert difference(known, completion(logprob=-0.2502, id="b", created=2, usage=None), tolerance=0.01) is None


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (completion("London"), "answer.choices[0].text is 'London' instead of 'Paris'"),
        (completion(logprob=-3.0), "answer.choices[0].logprobs.token_logprobs[0] is -3.0 instead of -0.25"),
        ({"choices": []}, "answer.choices has 0 entries instead of 1"),
        ({}, "answer has no 'choices'"),
        (completion(error="x"), "answer has 'error', which was not there"),
        (None, f"answer is None instead of {completion()!r}"),
        ([completion()], f"answer is {[completion()]!r} instead of {completion()!r}"),
    ],
)
def test_what_differs_is_said(other: object, said: str) -> None:
    assert difference(completion(), other, tolerance=0.1) == said


def test_a_number_that_is_none_is_another_answer() -> None:
    assert difference(completion(logprob=float("nan")), completion(), tolerance=0.1) is not None
    assert difference(completion(), completion(logprob=float("nan")), tolerance=0.1) is not None


def test_true_is_not_one() -> None:
    assert difference({"a": True}, {"a": 1.05}, tolerance=0.1) is not None


@pytest.mark.parametrize(
    "answer",
    [
        {"choices": [{"finish_reason": "stop"}, {"finish_reason": "abort"}]},
        {"text": "…", "meta_info": {"finish_reason": {"type": "abort", "message": "Aborted"}}},
        [{"meta_info": {"finish_reason": {"type": "stop"}}}, {"meta_info": {"finish_reason": {"type": "abort"}}}],
    ],
)
def test_an_answer_that_was_cut_off_is_seen(answer: object) -> None:
    assert aborted(answer)


@pytest.mark.parametrize(
    "answer",
    [None, "abort", 3, [], {}, completion(), {"choices": "abort"}, {"choices": [None, 1]}, {"finish_reason": "abort"},
     {"meta_info": {"finish_reason": None}}],
)  # fmt: skip
def test_any_other_answer_was_not_cut_off(answer: object) -> None:
    assert not aborted(answer)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "v1"}, "begins with '/'"),
        ({"body": "Hello"}, "a mapping is needed"),
        ({"tolerance": -1}, "a number from 0"),
        ({"tolerance": float("nan")}, "a number from 0"),
        ({"limit_s": None}, "a number from 0"),
        ({"limit_s": 0}, "seconds above 0"),
        ({"body": {"x": object()}}, "cannot be sent as JSON"),
        ({"body": {"x": float("nan")}}, "cannot be sent as JSON"),
    ],
)
def test_an_impossible_probe_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Probe(**options)  # type: ignore[arg-type]

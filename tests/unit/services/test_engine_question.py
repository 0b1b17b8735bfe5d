"""The question whose answer is known once it was given."""

from __future__ import annotations

from typing import Any

import pytest

from arl_tangram.errors import RestoreError
from arl_tangram.services.engine.probe import Probe
from arl_tangram.services.engine.question import Question
from arl_tangram.services.engine.remote import RefusedFault

pytestmark = pytest.mark.looptime


class Answers:
    """A door to a server that gives these answers, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.left = list(answers)

    async def post(self, path: str, body: object) -> Any:
        return self.left.pop(0)


async def test_the_first_answer_is_the_one_that_all_later_ones_must_be() -> None:
    question = Question(Answers({"text": "Paris"}, {"text": "Paris"}, {"text": "London"}), Probe(), "m")  # type: ignore[arg-type]
    await question.ask()
    await question.ask()
    with pytest.raises(RestoreError, match="does not answer /v1/completions as it did before"):
        await question.ask()


@pytest.mark.parametrize("first", [(), ({"text": "Paris"},)])
async def test_nothing_is_no_answer(first: tuple[Any, ...]) -> None:
    question = Question(Answers(*first, None), Probe(), "m")  # type: ignore[arg-type]
    for _ in first:
        await question.ask()
    with pytest.raises(RefusedFault, match="/v1/completions was answered with nothing"):
        await question.ask()

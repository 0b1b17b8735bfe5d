"""The scores of `demo --judge`, an action for each service."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TypeAlias

import torch

import arl_tangram as tangram
from arl_tangram.demo.judge.answers import Score
from arl_tangram.demo.judge.catalogue import SERVICES, ServiceName
from arl_tangram.demo.judge.scripts import Text


def tokens(text: Text) -> torch.Tensor:
    """Return the text as a model takes it."""
    return torch.tensor([text])


def score_of(output: torch.Tensor) -> Score:
    """Return the score that a model's output amounts to."""
    return Score(float(output.mean()), hashlib.blake2b(output.numpy().tobytes(), digest_size=16).hexdigest())


ScoreAction: TypeAlias = tangram.AsyncAction[[Text], Score]


def _scoring(service: ServiceName) -> ScoreAction:
    async def score(text: Text) -> Score:
        return score_of(await tangram.current_service().call(tokens(text)))

    score.__qualname__ = service
    return tangram.action(service=service)(score)


SCORING: Mapping[ServiceName, ScoreAction] = {service: _scoring(service) for service in SERVICES}
"""For each service, the action that scores a text with it."""

"""What the scores are without any pool: each model by itself, one text after the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from arl_tangram.demo.judge.actions import score_of, tokens
from arl_tangram.demo.judge.answers import Score
from arl_tangram.demo.judge.catalogue import SERVICES, ServiceName
from arl_tangram.demo.judge.encoder import load
from arl_tangram.demo.judge.scripts import JudgedScript, Scored


@dataclass(frozen=True, slots=True)
class Alone:
    """The scores of all texts, and what they took.

    Attributes:
        scores: by trajectory, the scores of all of its texts in order.
        forward_s: of one forward pass, mean by service.
    """

    scores: tuple[tuple[Score, ...], ...]
    forward_s: dict[ServiceName, float]


def score_alone(scripts: Sequence[JudgedScript]) -> Alone:
    """Score all texts with models that have never been in a pool, on this thread."""
    found: dict[tuple[ServiceName, Scored], Score] = {}
    forward_s: dict[ServiceName, float] = {}
    for service in SERVICES:
        texts = [each for script in scripts for each in script.scored if service in each.services]
        model, took_s = load(service), 0.0
        for each in texts:
            began_s = time.perf_counter()
            with torch.inference_mode():
                output = model(tokens(each.text))
            took_s += time.perf_counter() - began_s
            found[service, each] = score_of(output)
        if texts:
            forward_s[service] = took_s / len(texts)
    scores = tuple(tuple(found[name, each] for each in script.scored for name in each.services) for script in scripts)
    return Alone(scores, forward_s)

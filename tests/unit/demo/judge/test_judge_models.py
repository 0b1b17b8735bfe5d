"""The models that score: the same weights each time, as large as declared, and a score that depends on every bit."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from arl_tangram.demo.judge.actions import SCORING, score_of, tokens
from arl_tangram.demo.judge.alone import score_alone
from arl_tangram.demo.judge.catalogue import LENGTH, SERVICES, VOCABULARY, size_of
from arl_tangram.demo.judge.encoder import load
from arl_tangram.demo.judge.scripts import draw_scripts

TEXT = tuple(range(LENGTH))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_models_loaded_side_by_side_have_the_weights_of_one_loaded_alone() -> None:
    alone = load("reward").state_dict()
    with ThreadPoolExecutor(2) as threads:
        for model in threads.map(load, ["reward", "reward"]):
            for name, tensor in model.state_dict().items():
                assert torch.equal(tensor, alone[name]), name


def test_a_model_is_as_large_as_the_arena_counts_with() -> None:
    model = load("teacher-chat")
    assert sum(p.numel() * p.element_size() for p in model.parameters()) == size_of("teacher-chat")
    assert list(model.buffers()) == []
    assert all(p.isfinite().all() for p in model.parameters())


def test_each_token_has_its_log_probability() -> None:
    with torch.inference_mode():
        output = load("reward")(tokens(TEXT))
    assert output.shape == (1, LENGTH)
    assert bool((output <= 0).all())
    assert bool(output.isfinite().all())
    assert bool((output.exp() < 1).all())


def test_a_score_tells_outputs_apart_that_differ_in_one_bit() -> None:
    output = torch.full((1, 4), -2.0)
    other = output.clone()
    other[0, 3] = torch.nextafter(other[0, 3], torch.tensor(0.0))
    assert score_of(output) == score_of(output.clone())
    assert score_of(output).digest != score_of(other).digest


def test_each_service_has_an_action_of_its_own_name() -> None:
    assert {action.spec.cost.service: action.spec.name.rpartition(":")[2] for action in SCORING.values()} == {
        service: service for service in SERVICES
    }


def test_all_texts_are_scored_alone_in_the_order_of_the_scripts() -> None:
    script = draw_scripts(0, quick=True)[0]
    alone = score_alone([script])
    (scores,) = alone.scores
    assert len(scores) == sum(len(each.services) for each in script.scored)
    assert alone.forward_s.keys() == {name for each in script.scored for name in each.services}
    model = load("reward")
    with torch.inference_mode():
        assert scores[-1] == score_of(model(tokens(script.last.text)))
    assert all(0 <= token < VOCABULARY for token in script.last.text)

"""Declared costs: integer units, and bad input refused with the action, the resource and the value."""

from __future__ import annotations

import math

import numpy as np
import pytest

from arl_tangram.errors import DefinitionError
from arl_tangram.model.cost import Cost, declare_cost
from arl_tangram.model.elasticity import Elastic, Linear
from arl_tangram.model.quantities import GIB


def test_a_cost_vector_in_integer_units() -> None:
    cost = declare_cost("m:f", cpu=0.5, memory_gib=1.5, quota={"b": 2, "a": 0.25})
    assert cost == Cost(cpu=500, memory_bytes=3 * GIB // 2, quota=(("a", 250), ("b", 2000)))
    assert cost.minimum_cpu == 500
    assert declare_cost("m:f") == Cost()
    assert hash(cost) == hash(declare_cost("m:f", quota={"a": 0.25, "b": 2}, cpu=0.5, memory_gib=1.5))


def test_the_least_of_an_elastic_cost() -> None:
    assert declare_cost("m:f", cpu=Elastic(2, 8)).minimum_cpu == 2000


def test_numbers_of_numpy() -> None:
    cost = declare_cost("m:f", cpu=np.int64(2), memory_gib=np.float32(0.5), quota={"q": np.int32(1)})  # type: ignore[arg-type]
    assert cost == Cost(2000, GIB // 2, (("q", 1000),))


BAD = [-1, -0.001, math.nan, math.inf, "2", None, True, 10**400, [1]]


@pytest.mark.parametrize("value", BAD, ids=repr)
def test_an_impossible_amount_names_the_action_the_resource_and_the_value(value: object) -> None:
    for resource, cost in (
        ("cpu", {"cpu": value}),
        ("memory_gib", {"memory_gib": value}),
        ("quota['q']", {"quota": {"q": value}}),
    ):
        with pytest.raises(DefinitionError) as caught:
            declare_cost("m:f", **cost)  # type: ignore[arg-type]
        assert str(caught.value).startswith(f"m:f: {resource}")
        assert repr(value) in str(caught.value)


def test_over_fine_and_zero() -> None:
    with pytest.raises(DefinitionError, match=r"m:f: cpu = 0\.0001 is finer than a thousandth"):
        declare_cost("m:f", cpu=0.0001)
    with pytest.raises(DefinitionError, match=r"m:f: quota\['q'\] = 0\.0005 is finer"):
        declare_cost("m:f", quota={"q": 0.0005})
    with pytest.raises(DefinitionError, match=r"m:f: quota\['q'\] must be more than 0"):
        declare_cost("m:f", quota={"q": 0})
    assert declare_cost("m:f", cpu=0, memory_gib=0, quota={}) == Cost()


def test_one_elastic_resource_and_only_cores_or_gpus() -> None:
    with pytest.raises(DefinitionError, match="at most one resource may be Elastic, not cpu and memory_gib"):
        declare_cost("m:f", cpu=Elastic(1, 2), memory_gib=Elastic(1, 2))
    with pytest.raises(DefinitionError, match=r"cpu and quota\['q'\]"):
        declare_cost("m:f", cpu=Elastic(1, 2), quota={"q": Elastic(1, 2)})
    with pytest.raises(DefinitionError, match=r"only cpu= and gpu= can be Elastic, not memory_gib"):
        declare_cost("m:f", memory_gib=Elastic(1, 2))


@pytest.mark.parametrize(
    ("gpu", "gpus"),
    [
        (0, ()),
        (4, (4,)),
        (Elastic(1, 8), (1, 2, 4, 8)),
        (Elastic(2, 4), (2, 4)),
        (Elastic.of(1, 8, speedup=Linear()), (1, 8)),
        (Elastic(2, 2), (2,)),
    ],
    ids=repr,
)
def test_gpus_are_powers_of_two_up_to_8(gpu: int | Elastic, gpus: tuple[int, ...]) -> None:
    cost = declare_cost("m:f", gpu=gpu)
    assert cost.gpus == gpus
    assert not isinstance(gpu, Elastic) or (isinstance(cost.gpu, Elastic) and cost.gpu.speedup == gpu.speedup)


@pytest.mark.parametrize(
    "gpu",
    [3, 16, Elastic(1, 3), Elastic(3, 4), Elastic(1, 16), Elastic.of(1, 3, 4), Elastic.of(1, 2, 3, 4)],
    ids=repr,
)
def test_other_numbers_of_gpus_are_refused(gpu: int | Elastic) -> None:
    with pytest.raises(DefinitionError, match=r"m:f: gpu"):
        declare_cost("m:f", gpu=gpu)


@pytest.mark.parametrize("quota", ["q", ["q"], {1: 1}, 3], ids=repr)
def test_quota_is_a_mapping_from_names(quota: object) -> None:
    with pytest.raises(DefinitionError, match=r"quota= takes \{name: calls\}"):
        declare_cost("m:f", quota=quota)  # type: ignore[arg-type]

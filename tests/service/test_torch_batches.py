"""Splitting the batch of a call over devices, and joining what comes back."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.errors import UsageError
from arl_tangram.services.modules.batches import join, split
from arl_tangram.services.modules.values import to_host


class Pair(NamedTuple):
    one: Any
    other: Any


@dataclass
class Output:
    logits: torch.Tensor
    texts: list[str]
    hidden: torch.Tensor | None = None


@given(st.integers(1, 40), st.sampled_from([1, 2, 4, 8]))
def test_parts_are_even_and_joined_in_order(size: int, devices: int) -> None:
    texts = [f"text {number}" for number in range(size)]
    numbers = torch.arange(size * 3).view(size, 3)
    parts = split(((numbers, "fixed"), {"texts": texts, "scale": torch.tensor(2.0)}), devices)
    assert len(parts) == (min(size, devices) if size > 1 else 1)
    lengths = [len(kwargs["texts"]) for _, kwargs in parts]
    assert max(lengths) - min(lengths) <= 1
    assert min(lengths) >= 1
    assert all(args[1] == "fixed" and kwargs["scale"] == 2 for args, kwargs in parts)
    assert torch.equal(join([args[0] for args, _ in parts]), numbers)
    assert join([kwargs["texts"] for _, kwargs in parts]) == texts


def test_a_batch_is_found_in_dicts_and_tuples() -> None:
    tokens = {"ids": torch.arange(6).view(3, 2), "mask": np.ones((3, 2)), "name": "x"}
    parts = split(((tokens, Pair(torch.zeros(3), ["a", "b", "c"])), {}), 2)
    assert [args[0]["ids"].tolist() for args, _ in parts] == [[[0, 1]], [[2, 3], [4, 5]]]
    assert [args[0]["mask"].shape for args, _ in parts] == [(1, 2), (2, 2)]
    assert [args[1].other for args, _ in parts] == [["a"], ["b", "c"]]
    assert isinstance(parts[0][0][1], Pair)


class Encoded(UserDict[str, Any]):
    """What tokenizers give: no dict, and with a method `to`."""

    def __init__(self, data: dict[str, Any], note: str = "") -> None:
        super().__init__(data)
        self.note = note

    def to(self, device: torch.device) -> Encoded:
        return Encoded({key: value.to(device) for key, value in self.items()}, self.note)


def test_a_batch_is_found_in_dataclasses_and_in_what_tokenizers_give() -> None:
    encoded = Encoded({"ids": torch.arange(6).view(3, 2)}, "note")
    parts = split(((encoded,), {"output": Output(torch.zeros(3, 2), ["a", "b", "c"])}), 2)
    assert [args[0]["ids"].tolist() for args, _ in parts] == [[[0, 1]], [[2, 3], [4, 5]]]
    assert [args[0].note for args, _ in parts] == ["note", "note"]
    assert [kwargs["output"].texts for _, kwargs in parts] == [["a"], ["b", "c"]]
    assert [len(kwargs["output"].logits) for _, kwargs in parts] == [1, 2]
    assert encoded["ids"].shape == (3, 2)
    joined = join([args[0] for args, _ in parts])
    assert type(joined) is Encoded
    assert joined["ids"].tolist() == encoded["ids"].tolist()


@pytest.mark.parametrize("arguments", [(), ("a text",), (1, None), (torch.tensor(1.0),), ([],), (torch.empty(0, 4),)])
def test_what_has_no_batch_is_one_part(arguments: tuple[Any, ...]) -> None:
    (part,) = split((arguments, {}), 4)
    assert part[0] is arguments


def test_sizes_that_differ_are_refused_with_both() -> None:
    with pytest.raises(UsageError, match=r"over 2 devices .* sizes here: 3, 5"):
        split(((torch.zeros(3), ["a"] * 5), {}), 2)


def test_results_of_every_shape_are_joined() -> None:
    results = [Output(torch.full((size, 2), float(size)), [f"{size}"] * size) if size else None for size in (1, 2)]
    joined = join(results)
    assert isinstance(joined, Output)
    assert joined.logits.tolist() == [[1, 1], [2, 2], [2, 2]]
    assert joined.texts == ["1", "2", "2"]
    assert joined.hidden is None
    pairs = join([Pair(torch.zeros(1), np.zeros(2)), Pair(torch.ones(1), np.ones(1))])
    assert pairs.one.tolist() == [0, 1]
    assert pairs.other.tolist() == [0, 0, 1]
    ordered = join([OrderedDict(a=[1]), OrderedDict(a=[2])])
    assert type(ordered) is OrderedDict
    assert ordered == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([1.5, 2.5], "a float for each part"),
        ([torch.tensor(1.0), torch.tensor(2.0)], "a Tensor for each part"),
        ([np.array(1.0), np.array(2.0)], "a ndarray for each part"),
        (["a", "b"], "a str for each part"),
        ([[1], None], "differ in type: list, NoneType"),
        ([torch.zeros(4, 17), torch.zeros(4, 20)], r"of parts cannot be joined: they are \(4, 17\), \(4, 20\)"),
        ([np.zeros((4, 17)), np.zeros((4, 20, 1))], r"of parts cannot be joined: they are \(4, 17\), \(4, 20, 1\)"),
        ([torch.zeros(1), torch.tensor(1.0)], r"of parts cannot be joined: they are \(1,\), \(\)"),
        ([{"a": [1]}, {"a": [1], "b": [2]}], r"dicts of parts differ in keys: \['a'\], \['a', 'b'\]"),
        ([{"a": [1]}, {"b": [1]}], "dicts of parts differ in keys"),
        ([([1], [2]), ([1],)], "tuples of parts differ in length: 2, 1"),
    ],
)
def test_what_cannot_be_joined_is_refused(results: list[Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        join(results)


def test_results_on_the_host_share_no_memory_and_take_part_in_autograd() -> None:
    weight = torch.ones(3)
    with torch.inference_mode():
        computed = {"a": [weight * 2], "weight": weight[:2], "text": "x"}
    result = to_host(computed)
    assert result["weight"].data_ptr() != weight.data_ptr()
    assert not result["a"][0].is_inference()
    student = torch.ones(3, requires_grad=True)
    (student * result["a"][0]).sum().backward()
    assert student.grad is not None


def test_what_holds_the_results_stays_what_it_is() -> None:
    counted: defaultdict[str, Any] = defaultdict(list, a=torch.ones(2))
    result = to_host(counted)
    assert type(result) is defaultdict
    assert result["a"] is not counted["a"]
    assert result["new"] == []
    joined = join([counted, defaultdict(list, a=torch.zeros(1))])
    assert type(joined) is defaultdict
    assert joined["a"].tolist() == [1, 1, 0]
    encoded = Encoded({"ids": torch.ones(2)}, "note")
    assert to_host(encoded)["ids"].data_ptr() != encoded["ids"].data_ptr()
    assert to_host(encoded).note == "note"


def test_arrays_among_the_results_share_no_memory_either() -> None:
    weight = torch.ones(3)
    result = to_host({"view": weight.numpy()[:2], "own": np.ones(2)})
    weight.zero_()
    assert result["view"].tolist() == [1, 1]


def test_values_without_tensors_are_the_same_objects() -> None:
    value = {"score": 0.5, "items": [1, (2, "x")]}
    assert to_host(value) is value

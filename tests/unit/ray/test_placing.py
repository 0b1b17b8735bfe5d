from __future__ import annotations

from collections.abc import Sequence

import pytest

import arl_tangram as tangram
from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.ray.installed import RayNode
from arl_tangram.integrations.ray.placing import Node, declared, everywhere, placed, pools_of
from arl_tangram.managers.manager import CpuPool

HEAD = RayNode("h" * 8, "head", {"CPU": 2}, is_head=True)
BOXES = RayNode("b" * 8, "boxes", {"CPU": 2, "docker": 1}, is_head=False)
MACHINES = (HEAD, BOXES)


def pools() -> Sequence[CpuPool]:
    return [tangram.LocalPool()]


def factory() -> tangram.Tangram:
    return tangram.Tangram(tangram.LocalPool())


def test_a_node_goes_to_the_machine_that_is_named_or_has_what_it_needs_else_to_one_that_is_free() -> None:
    nodes = [
        Node("a", pools),
        Node("b", pools, resources={"docker": 1}),
        Node("c", pools, node_id=BOXES.id),
        Node("d", pools),
    ]
    chosen = [(place.name, place.node_id) for place in placed(nodes, MACHINES)]
    assert chosen == [("a", HEAD.id), ("b", BOXES.id), ("c", BOXES.id), ("d", HEAD.id)]


def test_the_only_node_has_no_name_in_its_dimensions() -> None:
    assert [place.name for place in placed([Node("a", pools)], MACHINES)] == [""]
    assert [place.name for place in everywhere(factory, [HEAD])] == [""]


@pytest.mark.parametrize("node", [Node("a", pools, node_id="no"), Node("a", pools, resources={"docker": 2})])
def test_a_node_that_fits_nowhere_is_refused_with_what_there_is(node: Node) -> None:
    with pytest.raises(ConfigurationError, match=r"Node\('a'\).*bbbbbbbb \(boxes\)"):
        placed([node], MACHINES)


def test_without_nodes_each_machine_has_the_pools_of_the_factory() -> None:
    places = everywhere(factory, MACHINES)
    assert [(place.name, place.node_id) for place in places] == [("head", HEAD.id), ("boxes", BOXES.id)]
    assert [place.pools() for place in places] == [[tangram.LocalPool()]] * 2
    same_host = everywhere(factory, [HEAD, HEAD])
    assert [place.name for place in same_host] == ["1", "2"]


def test_pools_are_those_that_the_factory_declares() -> None:
    assert pools_of(lambda: tangram.Tangram(tangram.Quota("a", concurrency=1))) == []


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Node("a b", pools),
        lambda: Node("a", None),  # type: ignore[arg-type]
        lambda: Node("a", pools, resources={"docker": 0}),
        lambda: declared([]),
        lambda: declared([Node("a", pools), Node("a", pools)]),
    ],
    ids=["name", "pools", "resources", "none", "twice"],
)
def test_what_cannot_be_a_node_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigurationError):
        wrong()  # type: ignore[operator]


def test_lines_name_the_function_and_not_the_machine() -> None:
    lines = declared([Node("b", pools, node_id="x"), Node("a", pools, resources={"docker": 1})])
    assert lines == (
        f"node a: pools={__name__}:pools, resources={{'docker': 1}}",
        f"node b: pools={__name__}:pools, resources={{}}",
    )

"""`share` and `connect` refuse at once what they cannot take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.ray import sharing
from arl_tangram.integrations.ray.node.offering import managers_of
from arl_tangram.integrations.ray.placing import Node
from arl_tangram.integrations.ray.sharing import connect, share
from arl_tangram.managers.manager import CpuPool


def pools() -> tangram.Tangram:
    return tangram.Tangram(tangram.LocalPool())


def quotas() -> tangram.Tangram:
    return tangram.Tangram(tangram.Quota("a", concurrency=1))


def resizing() -> tangram.Tangram:
    return tangram.Tangram(tangram.LocalPool(share="resize"))


def local() -> Sequence[CpuPool]:
    return [tangram.LocalPool()]


share_: Any = share  # for what the types refuse, too
connect_: Any = connect
Node_: Any = Node


@pytest.fixture(autouse=True)
def _ray_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "find_ray", lambda: None)


def test_what_is_possible_is_taken() -> None:
    assert repr(share(pools, name="a")) == "<Shared 'a', new>"
    assert repr(share(quotas, nodes=[Node("a", local)])) == "<Shared 'tangram', new>"
    assert repr(connect(expect=pools, job="01000000")) == "<Shared 'tangram', new>"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: share_(pools()), r"share\(\) takes a function that returns a Tangram, not <"),
        (lambda: share_(local), r"share\(\) takes a function that returns a Tangram, not <"),
        (lambda: share_(pools, nodes=[Node("a", local)]), "the factory declares none"),
        (lambda: share_(resizing), r"share\(\): LocalPool\(share=\) is for a runtime of one process"),
        (lambda: connect_(expect=resizing), r"connect\(expect=\): LocalPool\(share=\) is for a runtime of one process"),
        (lambda: managers_of("a", [tangram.LocalPool(share="resize")]), r"node 'a': LocalPool\(share=\) is for"),
        (lambda: share_(quotas, nodes=Node("a", local)), r"share\(nodes=\) takes a list of Node, not Node\("),
        (lambda: share_(quotas, nodes=[local]), r"share\(nodes=\) takes a list of Node, not \["),
        (lambda: share_(quotas, nodes=[]), "one or more nodes"),
        (lambda: share_(pools, name="x" * 201), "at most 200"),
        (lambda: share_(pools, lease_s=0), "lease_s"),
        (lambda: connect_(expect=pools()), r"connect\(expect=\) takes a function that returns a Tangram, not <"),
        (lambda: connect_(job=1), r"connect\(job=\) takes Ray's id of a job, such as '01000000', not 1"),
        (lambda: connect_(timeout="x"), "timeout"),
        (lambda: Node_("a", local, resources=["x"]), r"Node\('a'\): resources= takes numbers above 0 by name, not \["),
        (
            lambda: Node_("a", local, resources={"x": "1"}),
            r"Node\('a'\): resources= takes numbers above 0 by name, not",
        ),
        (lambda: Node_("a", local, node_id=1), r"Node\('a'\): node_id= takes Ray's id of a machine, not 1"),
    ],
    ids=[
        "no function",
        "a list",
        "pools twice",
        "shared while they run",
        "expected to be",
        "shared on a node",
        "one node",
        "no nodes",
        "empty",
        "long name",
        "lease",
        "expect",
        "job",
        "timeout",
        "resources",
        "amount",
        "node_id",
    ],
)
def test_what_is_not_is_refused_at_once(wrong: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        wrong()

from __future__ import annotations

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.ray.naming import SharedName, check_name, chosen, named, not_found, shared_name

OURS, THEIRS, OTHERS = (SharedName("tangram", job) for job in ("01000000", "02000000", "03000000"))
AGENTS = [OURS.agent(""), THEIRS.agent("gpu-1")]


def test_the_name_of_an_owner_can_be_read_back_and_that_of_an_agent_is_no_owners() -> None:
    assert shared_name(OURS.owner) == OURS
    assert [shared_name(name) for name in (*AGENTS, "somebody", "@", "a@")] == [None] * 5


@pytest.mark.parametrize("name", ["", "a b", "a@b", "a/b", "é", "x" * 201, None, 3])
def test_a_name_that_could_not_be_read_back_is_refused(name: object) -> None:
    with pytest.raises(ConfigurationError, match="letters, digits"):
        check_name(name, "share(name=)")


def test_the_runtime_of_ones_own_job_comes_first() -> None:
    actors = [*AGENTS, THEIRS.owner, OURS.owner]
    assert chosen("tangram", OURS.job, actors, any_job=True) == OURS
    assert chosen("tangram", THEIRS.job, actors, any_job=True) == THEIRS


def test_that_of_another_job_is_taken_if_it_is_the_only_one() -> None:
    assert chosen("tangram", OURS.job, [*AGENTS, THEIRS.owner], any_job=True) == THEIRS
    assert chosen("tangram", OURS.job, [THEIRS.owner], any_job=False) is None
    assert chosen("tangram", OURS.job, [THEIRS.owner, OTHERS.owner], any_job=True) is None
    assert chosen("other", OURS.job, [THEIRS.owner], any_job=True) is None


def test_the_message_says_what_there_is() -> None:
    actors = [*AGENTS, THEIRS.owner, OTHERS.owner]
    assert not_found("x", None, actors, 2) == (
        "no shared runtime 'x' was there within 2 s; there are: 'tangram' of job 02000000, 'tangram' of job 03000000"
    )
    assert not_found("x", "01000000", [], 2) == (
        "no shared runtime 'x' in job 01000000 was there within 2 s; there are: none"
    )
    assert not_found("tangram", None, actors, 2) == (
        "2 jobs share a runtime of the name 'tangram'; say which, as job=: 02000000, 03000000"
    )


def test_the_only_node_has_no_name_in_messages() -> None:
    assert [named("a"), named("")] == ["node 'a'", "the node"]

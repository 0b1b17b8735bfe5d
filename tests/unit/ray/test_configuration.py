from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import arl_tangram as tangram
from arl_tangram.integrations.ray.configuration import describe, differences, fingerprint, without_nodes, words
from arl_tangram.scheduling.policies import Group


def lines(*resources: object, **options: object) -> tuple[str, ...]:
    return describe(tangram.Tangram(*resources, **options).setup)  # type: ignore[arg-type]


def plan(group: Group) -> Sequence[int]:
    return [1] * len(group.candidates)


def load(size: int) -> None: ...


def test_equal_declarations_have_one_fingerprint_whatever_the_order_of_their_quotas() -> None:
    a, b = tangram.Quota("a", concurrency=2), tangram.Quota("b", calls=3, period_s=1)
    assert fingerprint(lines(tangram.LocalPool(), a, b)) == fingerprint(lines(tangram.LocalPool(), b, a))


def test_whatever_is_declared_differently_makes_another() -> None:
    declared = [
        lines(tangram.LocalPool()),
        lines(tangram.LocalPool(cores=1)),
        lines(tangram.LocalPool(), order="shortest"),
        lines(tangram.LocalPool(), policy=tangram.policies.fixed(1)),
        lines(tangram.LocalPool(), policy=plan),
        lines(tangram.LocalPool(), kill_grace_s=1),
        lines(tangram.LocalPool(), tangram.Quota("a", concurrency=2)),
        lines(tangram.LocalPool(), tangram.Quota("a", concurrency=3)),
        lines(tangram.LocalPool(), tangram.Quota("a", concurrency=2, breaker=tangram.Breaker())),
        lines(tangram.DockerPool(image="busybox")),
        lines(tangram.DockerPool(hosts=[tangram.DockerHost(url="tcp://a:1"), tangram.DockerHost(url="tcp://b:1")])),
        lines(),
    ]
    assert len({fingerprint(one) for one in declared}) == len(declared)


def test_keys_are_counted_and_never_shown() -> None:
    one, other, more = (lines(tangram.Quota("a", concurrency=2, keys=keys)) for keys in (["k1"], ["k2"], ["k1", "k2"]))
    assert one == other != more
    assert "k1" not in "".join(one + more)
    assert "with 2 keys" in "".join(more)


def test_functions_are_named_and_nothing_shows_where_it_is_in_memory() -> None:
    assert words(partial(load, size=3)) == f"partial({__name__}:load, size=3)"
    assert words(load) == f"{__name__}:load"
    assert f"{__name__}:plan" in "".join(lines(policy=plan))
    assert words(object()) == "builtins:object"
    assert words({"b": 2, "a": [1, None]}) == "{'a': (1, None), 'b': 2}"


def test_what_differs_is_told_by_the_lines_that_only_one_side_has() -> None:
    there, here = lines(tangram.LocalPool(cores=1), order="shortest"), lines(tangram.LocalPool(cores=1))
    assert differences(there, here) == "only there: order: shortest; only here: order: fcfs"


def test_of_a_long_line_on_both_sides_only_what_differs_is_told() -> None:
    def server(python: str) -> tuple[str, ...]:
        service = tangram.ProcessService("judge", launch=[python, "-c", "words " * 100, "{port}"], gpu_gib=1)
        return lines(tangram.GpuPool(service, devices=["cpu:0:1GiB"]))

    told = differences(server("/a/bin/python"), server("/b/bin/python"))
    assert told == "only there: gpus: … launch=('/a/bin/python' …; only here: gpus: … launch=('/b/bin/python' …"


def test_of_two_quotas_each_is_compared_with_the_one_of_its_name() -> None:
    a, b = tangram.Quota("a", concurrency=2), tangram.Quota("b", concurrency=2)
    told = differences(lines(a, b), lines(tangram.Quota("a", concurrency=3), tangram.Quota("b", concurrency=4)))
    assert told == (
        "only there: quota: Quota(name='a' … concurrency=2 …; only there: quota: Quota(name='b' … concurrency=2 …; "
        "only here: quota: Quota(name='a' … concurrency=3 …; only here: quota: Quota(name='b' … concurrency=4 …"
    )


def test_the_lines_of_nodes_can_be_left_out() -> None:
    setup = tangram.Tangram(tangram.Quota("node", concurrency=2)).setup
    assert without_nodes(describe(setup, ["node a: pools=m:f, resources={}"])) == describe(setup)

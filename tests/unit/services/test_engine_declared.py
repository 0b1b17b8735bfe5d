"""Declarations of engines: what is impossible is refused when it is declared."""

from __future__ import annotations

import re
from typing import Any

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.services.engine.declared import EngineDeclaration
from arl_tangram.services.process import ProcessService
from arl_tangram.services.sglang import SglangService
from arl_tangram.services.vllm import VllmService

URL = "http://127.0.0.1:8000"


@pytest.mark.parametrize("service", [VllmService, SglangService])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": ""}, "the name of a service has letters"),
        ({"name": ["judge"]}, "the name of a service is a string, such as 'judge', not ['judge']"),
        ({"url": None}, "a url is needed, or a command"),
        ({"url": "127.0.0.1:8000"}, "http://host:port"),
        ({"url": "ftp://host"}, "http://host:port"),
        ({"url": "http://"}, "http://host:port"),
        ({"url": 8000}, "http://host:port"),
        ({"url": None, "launch": "vllm serve"}, "a list of words"),
        ({"url": None, "launch": []}, "a list of words"),
        ({"url": None, "launch": ["vllm", 1]}, "its words are texts"),
        ({"url": None, "launch": ["vllm", "serve"]}, "has no {port}"),
        ({"gpu_gib": 0}, "gpu_gib=0"),
        ({"gpu_gib": -1}, "gpu_gib"),
        ({"gpu_gib": "40"}, "gpu_gib"),
        ({"asleep_gib": 40}, "less than gpu_gib"),
        ({"host_gib": -1}, "host_gib"),
        ({"dop": 3}, "there are 1, 2, 4, 8"),
        ({"dop": 0}, "dop"),
        ({"devices": [0, 1]}, "1 different ones"),
        ({"devices": [0, 0], "dop": 2}, "2 different ones"),
        ({"devices": "GPU-1"}, "a list of names or numbers"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"transition_s": 0}, "transition_s"),
        ({"call_s": float("inf")}, "call_s"),
        ({"probe": "Hello"}, "a Probe is needed"),
        ({"env": {"TOKEN": 3}}, "env= takes {name: text}; that of 'TOKEN' is no text"),
        ({"env": {"A=B": "x"}}, "env= takes {name: text}; 'A=B' is no name"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "env= must not have CUDA_VISIBLE_DEVICES"),
        ({"env": "TOKEN=x"}, "env= takes {name: text}, not a str"),
        ({"exclusive": 1}, "exclusive= takes True or False"),
        ({"memory_of": 3}, "memory_of= takes a function"),
        ({"model": 3}, "model= takes the name of a model"),
        ({"api_key": 3}, "api_key= takes a text of printable ASCII"),
        ({"api_key": "a\nb"}, "api_key= takes a text of printable ASCII"),
    ],
)
def test_what_is_impossible_is_refused(service: Any, options: dict[str, Any], said: str) -> None:
    given = {"name": "judge", "url": URL, "gpu_gib": 40, **options}
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        service(given.pop("name"), **given)


@pytest.mark.parametrize("declare", [VllmService, SglangService, ProcessService])
def test_variables_that_are_refused_are_not_shown(declare: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        declare("judge", launch=["serve", "{port}"], gpu_gib=40, env={"KEY": "secret-1", "BAD": "secret-2\0"})
    assert "'BAD'" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_admin_key_is_a_text() -> None:
    with pytest.raises(ConfigurationError, match="admin_api_key= takes a text of printable ASCII"):
        SglangService("judge", url=URL, gpu_gib=40, admin_api_key="")


def test_a_vllm_server_sleeps_at_one_of_two_levels() -> None:
    with pytest.raises(ConfigurationError, match="level=3: there are 1 and 2"):
        VllmService("judge", url=URL, gpu_gib=40, level=3)  # type: ignore[arg-type]


def test_a_launched_server_may_listen_where_its_command_says() -> None:
    VllmService("judge", url=URL, launch=["vllm", "serve"], gpu_gib=40)


@pytest.mark.parametrize("service", [VllmService, SglangService])
def test_keys_and_variables_are_not_shown(service: type[EngineDeclaration]) -> None:
    declared = service("judge", url=URL, gpu_gib=40, api_key="secret-1", env={"TOKEN": "secret-2"})
    assert "secret" not in repr(declared)
    assert "secret-3" not in repr(SglangService("judge", url=URL, gpu_gib=40, admin_api_key="secret-3"))


def test_waking_takes_as_long_as_its_memory_unless_it_is_said() -> None:
    assert VllmService("judge", url=URL, gpu_gib=40).expected_restore_s() == pytest.approx(8.0)
    assert VllmService("judge", url=URL, gpu_gib=40, restore_s=3).expected_restore_s() == 3

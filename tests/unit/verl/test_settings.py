from __future__ import annotations

from typing import Any

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.verl.settings import Settings, read_sample, read_settings


def test_the_block_of_the_trainer_becomes_settings() -> None:
    block = {"pools": "my_agent:pools", "deadline_s": 90, "memory_gib": 2, "image": None, "reward": "my_agent:grade"}

    settings = read_settings({"tangram": block, "trainer": {}})

    assert settings == Settings("my_agent:pools", deadline_s=90.0, memory_gib=2.0, reward="my_agent:grade")


def test_without_the_block_the_line_to_add_is_told() -> None:
    with pytest.raises(ConfigurationError, match=r"\+tangram\.pools=module:function"):
        read_settings({"trainer": {}})


def test_unknown_keys_are_told_with_all_that_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"no key 'cores', 'pool'\. Its keys: pools, nodes, .*reward"):
        read_settings({"tangram": {"pool": "a:b", "cores": 4}})


def test_the_key_that_it_cannot_do_without_is_told() -> None:
    with pytest.raises(ConfigurationError, match="needs the key 'pools'"):
        read_settings({"tangram": {"name": "other"}})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pools", "my_agent"),
        ("pools", ":pools"),
        ("setup", "my_agent:"),
        ("deadline_s", 0),
        ("deadline_s", "soon"),
        ("lease_s", float("inf")),
        ("memory_gib", -1),
        ("memory_gib", True),
        ("image", 3),
        ("name", None),
    ],
)
def test_a_value_that_a_key_cannot_have_is_told_with_the_key(key: str, value: Any) -> None:
    block = {"pools": "my_agent:pools", key: value}

    with pytest.raises(ConfigurationError, match=rf"tangram\.{key}.*not {value!r}"):
        read_settings({"tangram": block})


def test_a_sample_has_an_image_and_memory_of_its_own() -> None:
    settings = Settings("a:pools", image="debian", memory_gib=1)

    assert read_sample({}, settings) is settings
    assert read_sample({"tangram": {"image": "fedora", "memory_gib": None}}, settings) == Settings(
        "a:pools", image="fedora", memory_gib=1
    )


@pytest.mark.parametrize("own", [{"cores": 2}, ["debian"], {"memory_gib": "much"}])
def test_a_sample_with_anything_else_is_refused(own: Any) -> None:
    with pytest.raises(ConfigurationError, match=r'extra_info\["tangram"\]'):
        read_sample({"tangram": own}, Settings("a:pools"))

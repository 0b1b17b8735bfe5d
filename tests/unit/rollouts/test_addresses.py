"""What a configuration names is found, or an error says what is wrong with its address, and where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from arl_tangram import ConfigurationError
from arl_tangram.integrations.rollouts import find_action, find_function
from unit.rollouts import actions_here

HERE = actions_here.__name__


def test_an_address_names_an_action_a_function_or_what_an_object_has() -> None:
    assert find_action(f"{HERE}:write", where="tools") is actions_here.write
    assert find_function(f"{HERE}:plain", where="reward") is actions_here.plain
    assert find_action(f"{HERE}:holder.say", where="tools").__self__ is actions_here.holder  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "address",
    [HERE, f"{HERE}:", ":write", "a:b:c", "", None, 3, actions_here.write],
)
def test_what_is_no_address_is_refused(address: object) -> None:
    with pytest.raises(ConfigurationError, match=r"tools\[0\]: action takes an address such as"):
        find_action(address, where="tools[0]: action")  # type: ignore[arg-type]


def test_a_module_that_cannot_be_imported_is_told_with_the_process() -> None:
    with pytest.raises(ConfigurationError) as told:
        find_action("nowhere.at.all:run", where="tools.yaml")
    assert str(os.getpid()) in str(told.value)
    assert "ModuleNotFoundError: No module named 'nowhere'; its folder must be on PYTHONPATH there" in str(told.value)


def test_a_module_that_fails_is_told_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fails_to_import.py").write_text("1 / 0\n")
    (tmp_path / "misses_another.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match="ZeroDivisionError"):
        find_function("fails_to_import:run", where="reward")
    with pytest.raises(ConfigurationError, match=r"No module named 'no_such_library'$"):
        find_function("misses_another:run", where="reward")


@pytest.mark.parametrize("find", [find_action, find_function])
def test_what_is_not_there_or_cannot_be_called_is_refused(find: object) -> None:
    assert callable(find)
    with pytest.raises(ConfigurationError, match=f"there is no '{HERE}:nothing'"):
        find(f"{HERE}:nothing", where="tools")
    with pytest.raises(ConfigurationError, match=f"'{HERE}:number'"):
        find(f"{HERE}:number", where="tools")


def test_a_function_is_no_action() -> None:
    with pytest.raises(ConfigurationError, match=rf"tools: '{HERE}:plain'.*decorate it with @tangram.action"):
        find_action(f"{HERE}:plain", where="tools")

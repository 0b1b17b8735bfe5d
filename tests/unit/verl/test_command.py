"""The check of a job, where there is no VeRL; `tests/trainers/test_job.py` has the rest."""

from __future__ import annotations

import pytest

from arl_tangram.errors import MissingExtraError
from arl_tangram.integrations.verl import supported
from arl_tangram.integrations.verl.__main__ import main


def test_without_verl_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise MissingExtraError("verl 0.8.0 is installed: pip install 'arl-tangram[verl]'")

    monkeypatch.setattr(supported, "check", missing)
    assert main(["+tangram.pools=a:b"]) == 1
    assert capsys.readouterr().err == "MissingExtraError: verl 0.8.0 is installed: pip install 'arl-tangram[verl]'\n"

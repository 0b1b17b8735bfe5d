from __future__ import annotations

from arl_tangram.managers.environment import GRANT_VARIABLES, granted, inherited


def test_secrets_stay_with_the_trainer() -> None:
    environ = {
        "PATH": "/bin",
        "LC_ALL": "C.UTF-8",
        "LANG": "C",
        "VIRTUAL_ENV": "/venv",
        "OPENAI_API_KEY": "secret",
        "HF_TOKEN": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "https_proxy": "http://user:secret@proxy",
        "LD_PRELOAD": "x.so",
        "HOME": "/root",
    }
    assert inherited(environ) == {"PATH": "/bin", "LC_ALL": "C.UTF-8", "LANG": "C", "VIRTUAL_ENV": "/venv"}


def test_programs_are_found_without_a_path() -> None:
    assert "/usr/bin" in inherited({})["PATH"]


def test_a_grant_is_told_in_whole_cores() -> None:
    assert granted(4000) == dict.fromkeys(GRANT_VARIABLES, "4")
    assert granted(500) == dict.fromkeys(GRANT_VARIABLES, "1")
    assert granted(1500) == dict.fromkeys(GRANT_VARIABLES, "2")

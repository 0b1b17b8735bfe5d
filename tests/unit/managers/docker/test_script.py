"""The text for shells: what is in it, and what is not. What it does is tested with shells (`test_session`)."""

from __future__ import annotations

import subprocess

import pytest

from arl_tangram.managers.docker import script

SECRET = "0123456789abcdef" * 2
FILE = f"{script.GUARD_FILES}f"


@pytest.mark.parametrize("name", ["A", "_x", "PATH", "HOME", "ab12", "LC_ALL", "OMP_NUM_THREADS", "ENVIRONMENT"])
def test_plain_names(name: str) -> None:
    assert script.is_plain(name)


@pytest.mark.parametrize(
    "name", ["", "A.B", "1a", "a-b", "a b", "é", "A\n", "UID", "PPID", "IFS", "BASH_ENV", "BASHOPTS", "PWD", "_", "ENV"]
)
def test_names_that_a_shell_cannot_set(name: str) -> None:
    assert not script.is_plain(name)


@pytest.mark.parametrize("word", ["", "a b", "'", "''", "a'b\n$(x)`y`\\", "\udcff"])
def test_quoted_words_are_one_word(word: str) -> None:
    done = subprocess.run([b"sh", b"-c", b"printf %s " + script.quoted(word)], capture_output=True, check=True)
    assert done.stdout == word.encode(errors="surrogateescape")


def test_the_secret_is_in_no_argument() -> None:
    assert SECRET.encode() in script.opening(SECRET, FILE)
    assert FILE.encode() in script.opening(SECRET, FILE)
    first = script.opening(SECRET, FILE).decode().splitlines()[0]
    for word in [*script.session_argv(), first]:
        assert SECRET not in word
        assert FILE not in word


def test_only_a_clean_session_kills_when_it_begins() -> None:
    first, clean = (script.opening(SECRET, FILE, clean=clean).split(b"\n", 1)[0] for clean in (False, True))
    assert first.count(b"kill -9 -1") == 1  # the guard's
    assert clean.startswith(b"arl_uptime()")
    assert clean.count(b"kill -9 -1") == 3


def test_process_1_finds_the_guard_by_the_end_of_its_command_line() -> None:
    first = script.opening(SECRET, FILE).split(b"\n", 1)[0].decode()
    guard = first.split('"')[1]
    assert f"{guard}{script.GUARD_NAME}".endswith(f"kill -9 0{script.GUARD_NAME}")
    assert f"*'kill -9 0{script.GUARD_NAME}'" in script.PID1
    assert "\n" not in guard


@pytest.mark.parametrize("shell", [["dash"], ["busybox", "sh"], ["bash", "--posix"]], ids=lambda words: words[0])
@pytest.mark.parametrize(
    "text",
    [
        script.PID1.encode(),
        script.opening(SECRET, FILE),
        script.opening(SECRET, FILE, clean=True, tells_children=True),
        script.session_argv()[2].encode(),
        script.sweep([3], ["1."], [5, 6], 2).encode(),
        script.sweep([], [], [], 2).encode(),
        script.command(
            ["a"], cwd="/", env={"A": "1", "B.C": "2"}, redirection=script.Redirection(b"x", None, ("/a", "/b"))
        ),
    ],
    ids=["first", "opening", "clean", "session", "sweep", "sweep all", "command"],
)
def test_every_text_is_sound_for_every_shell(shell: list[str], text: bytes) -> None:
    done = subprocess.run([*shell, "-n"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_nothing_but_builtins_on_the_way_of_an_ordinary_command() -> None:
    """A fork costs as much as the command itself."""
    text = script.command(["true"], cwd="/work", env={"A": "1"}, redirection=script.Redirection()).decode()
    assert text == "(\narl_start\narl_cd '/work'\nexport A='1'\narl_exec 'true'\n) </dev/null\n"


def test_variables_that_a_shell_cannot_set_go_through_env() -> None:
    text = script.command(["x", "y"], cwd="/", env={"A.B": "1", "C": "2"}, redirection=script.Redirection()).decode()
    assert "arl_exec_env 1 'A.B=1' 'x' 'y'" in text
    assert "export C='2'" in text

"""Python and a shell in a sandbox of this machine: what they print, how they fail, and what stays."""

from __future__ import annotations

from arl_tangram import LocalPool, Tangram
from arl_tangram.integrations.rollouts import Rollout, Tool
from arl_tangram.integrations.rollouts.sandbox_tools import MOST_CHARACTERS, python, shell

PYTHON = Tool.declare(python, name="code_interpreter")
SHELL = Tool.declare(shell)


async def test_programs_and_commands_share_the_files_of_a_rollout() -> None:
    async with Tangram(LocalPool(cores=1)) as tg, Rollout(tg) as rollout:
        used = await rollout.use(PYTHON, {"code": "open('n', 'w').write('42')\nprint('written')"})
        assert (used.text, used.ok) == ("written\n", True)
        assert (await rollout.use(SHELL, {"command": "cat n"})).text == "42"
        failed = await rollout.use(PYTHON, {"code": "print('before')\n1 / 0"})
        assert failed.ok, "a program that fails is a result"
        assert failed.text.startswith("before\nTraceback")
        assert failed.text.endswith("ZeroDivisionError: division by zero\nexit code 1")
        assert (await rollout.use(SHELL, {"command": "exit 3"})).text == "exit code 3"


async def test_long_output_has_its_head_and_its_tail() -> None:
    async with Tangram(LocalPool(cores=1)) as tg, Rollout(tg) as rollout:
        text = (await rollout.use(PYTHON, {"code": "print('a' + 'x' * 3_000_000 + 'b', end='')"})).text
    assert (text[0], text[-1]) == ("a", "b")
    assert "characters are left out" in text
    assert len(text) < MOST_CHARACTERS + 60


async def test_a_command_that_hangs_is_ended() -> None:
    tool = Tool.declare(shell, timeout_s=0.2)
    async with Tangram(LocalPool(cores=1)) as tg, Rollout(tg) as rollout:
        used = await rollout.use(tool, {"command": "sleep 1000"})
        assert used.text == "Error: shell ran for too long and was stopped"
        assert (await rollout.use(SHELL, {"command": "echo on"})).text == "on\n"

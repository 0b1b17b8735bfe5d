"""What the how-tos and the examples of trainers show is run, with a tiny model in the place of theirs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from documents import OF_TRAINERS, ROOT, script
from trainers.programs import ended
from trainers.tiny_model import write_tiny_model

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
TRL = "docs/how-to/use-trl.md"
LIMIT_S = 200
pytestmark = pytest.mark.timeout(LIMIT_S + 30)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import trl

    template = Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja"
    return write_tiny_model(tmp_path_factory.mktemp("model"), chat_template=template.read_text())


def _run(words: list[str], folder: Path) -> str:
    environment = {"PYTHONPATH": str(ROOT), "TRL_EXPERIMENTAL_SILENCE": "1", "NO_COLOR": "1"}
    done = ended(words, folder, environment, limit_s=LIMIT_S)
    assert done.code == 0, done.output[-6000:]
    assert done.left == []
    return done.output


def _run_page(name: str, model: Path, folder: Path) -> str:
    program = script(ROOT / name)
    assert program.strip()
    (folder / "page.py").write_text(program.replace(MODEL, str(model)))
    return _run([sys.executable, "page.py"], folder)


@pytest.mark.parametrize("page", sorted(set(OF_TRAINERS) - {TRL}))
def test_the_python_of_a_page_runs(page: str, model: Path, tmp_path: Path) -> None:
    _run_page(page, model, tmp_path)


def test_the_page_of_trl_trains_and_logs_what_it_says(model: Path, tmp_path: Path) -> None:
    printed = _run_page(TRL, model, tmp_path)
    figures = (ROOT / TRL).read_text().partition("## Figures")[2].partition("##")[0]
    names = set(re.findall(r"`([a-z]+_[a-z]+|calls|failures)`", figures)) - {"batch_reward"}
    assert len(names) == 7
    assert {name for name in names if not re.search(rf"'tangram/[^']*{name}'", printed)} == set()


def test_the_example_of_trl_trains(model: Path, tmp_path: Path) -> None:
    words = [
        sys.executable,
        str(ROOT / "examples/trl_grpo/train.py"),
        "--model",
        str(model),
        "--steps",
        "1",
        "--tokens",
        "24",
    ]
    printed = _run(words, tmp_path)
    assert "'reward'" in printed
    assert "right" in printed

"""The rules that conftest.py holds every test to can fail: each is broken once, in a pytest run of its own."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from blockbuster import BlockingError

import arl_tangram
from blocking import EXEMPTIONS, Exemption

CONFTEST = Path(__file__).parents[1] / "conftest.py"

SAMPLES = """
import asyncio, os, subprocess, threading, time
import pytest
from hypothesis import given, strategies as st

release = threading.Event()

async def test_task():
    asyncio.get_running_loop().create_task(asyncio.sleep(3600), name="forgotten")

def test_thread():
    threading.Thread(target=release.wait, name="forgotten", daemon=True).start()

def test_running_child():
    subprocess.Popen(["sleep", "3600"]).returncode = 0  # silences the warning of Popen itself

def test_zombie():
    if os.fork() == 0:
        os._exit(0)

def test_coroutine():
    asyncio.sleep(0)

def test_file():
    open(__file__)

def test_that_skips_itself():
    pytest.skip("no time")

@given(st.integers())
async def test_property(number):
    asyncio.get_running_loop().create_task(asyncio.sleep(3600))

@pytest.fixture
async def background():
    task = asyncio.get_running_loop().create_task(asyncio.sleep(3600))
    yield
    task.cancel()

async def test_fixture_that_tidies_up(background):
    pass

@given(st.integers())
async def test_property_that_tidies_up(number):
    await asyncio.create_task(asyncio.sleep(0))

async def test_that_waits_for_its_child():
    child = await asyncio.create_subprocess_exec("true")
    await child.wait()

async def test_thread_pool_of_the_loop():
    await asyncio.to_thread(time.sleep, 0.01)

def test_that_ends_its_thread_late():
    threading.Thread(target=time.sleep, args=(0.1,)).start()
"""

EXPECTED = {
    "test_task": "task 'forgotten'",
    "test_thread": "thread 'forgotten'",
    "test_running_child": "'sleep 3600', running",
    "test_zombie": "never waited for",
    "test_property": "task 'Task-",
    "test_coroutine": "was never awaited",
    "test_file": "unclosed file",
    "test_that_skips_itself": "no time",
}
TIDY = {
    "test_fixture_that_tidies_up",
    "test_property_that_tidies_up",
    "test_that_waits_for_its_child",
    "test_thread_pool_of_the_loop",
    "test_that_ends_its_thread_late",
}


def _settings() -> str:
    return f"""
[tool.pytest]
strict = true
addopts = ["--import-mode=importlib", "-p", "no:cacheprovider"]
pythonpath = ["{CONFTEST.parent}"]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"
filterwarnings = ["error"]
"""


def _run(pytester: pytest.Pytester, source: str) -> tuple[dict[str, str], set[str]]:
    """Run this test file under our conftest; return what was said of each test that is not in order, and the others."""
    pytester.makepyprojecttoml(_settings())
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makepyfile(test_sample=source)
    pytester.runpytest_subprocess("--junit-xml=report.xml", "-o", "junit_logging=no")
    told: dict[str, list[str]] = {}
    for case in ET.parse(pytester.path / "report.xml").iter("testcase"):
        told.setdefault(case.attrib["name"], []).extend(fault.text or "" for fault in case)
    wrong = {name: "\n".join(faults) for name, faults in told.items() if faults}
    return wrong, told.keys() - wrong.keys()


def test_each_kind_of_leftover_fails_its_test_and_no_other(pytester: pytest.Pytester) -> None:
    wrong, right = _run(pytester, SAMPLES)
    assert wrong.keys() == EXPECTED.keys()
    for name, words in EXPECTED.items():
        assert words in wrong[name]
    assert right == TIDY


async def test_a_blocking_call_of_the_package_on_the_loop_is_an_error() -> None:
    source = "import time\ndef block(): time.sleep(0)"
    ours: dict[str, Any] = {}
    exec(compile(source, str(Path(arl_tangram.__path__[0]) / "sample.py"), "exec"), ours)  # noqa: S102 - blockbuster goes by the file name
    with pytest.raises(BlockingError):
        ours["block"]()
    await asyncio.to_thread(ours["block"])
    time.sleep(0)  # noqa: ASYNC251 - not the package's doing


@pytest.mark.looptime
async def test_an_hour_of_virtual_time_takes_no_time() -> None:
    loop, real_s = asyncio.get_running_loop(), time.monotonic()
    begun_s = loop.time()
    await asyncio.sleep(3600)
    assert loop.time() - begun_s == pytest.approx(3600)
    assert time.monotonic() - real_s < 60


@pytest.mark.parametrize("exemption", EXEMPTIONS, ids=lambda exemption: exemption.function)
def test_what_may_block_still_exists(exemption: Exemption) -> None:
    assert f"def {exemption.function}(" in (Path(arl_tangram.__path__[0]) / exemption.file).read_text()

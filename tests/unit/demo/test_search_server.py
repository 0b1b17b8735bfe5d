"""The search API: answers from docstrings, refuses what is too much, and ends with its parent."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from arl_tangram.demo.search_api import Refused, search_api, search_server
from arl_tangram.demo.search_server import DocstringIndex, RateLimit, docstrings

SOURCE = '''
def trim(series):
    """Trim trailing zeros of a series.

    The coefficients are ordered from low to high.
    """


class Series:
    """A series with a domain."""
'''


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "series.py").write_text(SOURCE)
    return tmp_path


@pytest.fixture
def server(docs: Path) -> Iterator[str]:
    with search_server(docs, calls=2, period_s=300) as address:
        yield address


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_limit_holds_in_every_window() -> None:
    clock = Clock()
    limit = RateLimit(2, 10, clock)
    assert limit.admit() == 0
    clock.now_s = 106
    assert limit.admit() == 0
    clock.now_s = 107.5
    assert limit.admit() == 3  # the first call leaves the window at 110
    clock.now_s = 110
    assert limit.admit() == 0
    assert limit.admit() == 6
    assert (limit.answered, limit.refused) == (3, 2)


def test_retry_after_is_never_below_a_second() -> None:
    clock = Clock()
    limit = RateLimit(1, 0.2, clock)
    limit.admit()
    assert limit.admit() == 1


def test_the_index_ranks_rare_words_first(docs: Path) -> None:
    index = DocstringIndex(docstrings(docs))
    assert index.search("the domain of a series")[0] == "series.py:Series: A series with a domain."
    assert index.search("trailing zeros") == ["series.py:trim: Trim trailing zeros of a series."]
    assert index.search("elephants") == []


async def test_it_answers_refuses_and_counts(server: str) -> None:
    async with search_api(server) as api:
        assert await api.search("trailing zeros") == ["series.py:trim: Trim trailing zeros of a series."]
        assert await api.search("elephants") == []
        refused = await api.search("once too often")
        assert isinstance(refused, Refused)
        assert 290 <= refused.retry_after_s <= 300
        assert await api.refused() == 1


async def test_an_unknown_path_is_no_search(server: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"{server}/elsewhere")).status_code == 404


def test_the_server_is_gone_afterwards(docs: Path) -> None:
    with search_server(docs) as address:
        assert httpx.get(f"{address}/counts", trust_env=False).json() == {"answered": 0, "refused": 0}
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/counts", trust_env=False)


def test_a_server_that_cannot_start_is_reported(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def broken(:\n")
    with pytest.raises(ChildProcessError, match="did not start"), search_server(tmp_path):
        pass


def test_the_server_ends_when_its_parent_is_killed(docs: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom arl_tangram.demo.search_api import search_server\n"
        "with search_server(Path(sys.argv[1])) as address:\n    print(address, flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(docs)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        url = httpx.URL(parent.stdout.readline().decode().strip())
        assert url.port is not None
        connection = HTTPConnection(url.host, url.port, timeout=30)
        connection.request("GET", "/counts")
        connection.getresponse().read()
        with connection.sock as kept_alive:
            parent.send_signal(signal.SIGKILL)
            parent.wait()
            assert kept_alive.recv(1) == b""  # closed by its end, in far less than the time-out

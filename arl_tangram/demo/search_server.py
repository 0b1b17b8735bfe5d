"""The search API of the demo: an HTTP server on loopback with a rate limit, run as a program of its own.

It answers `GET /search?q=…` from an index of the docstrings of a source tree, or 429 with
`Retry-After` when more than `--calls` were answered within the last `--period-s` seconds, and counts
both at `GET /counts`. It prints its port, and ends when its standard input does: with its parent,
however that ends. It imports the standard library only, so that it is up at once.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import re
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

_HITS = 5


class RateLimit:
    """At most `calls` within any `period_s` seconds, and a count of who was let in and who was not."""

    def __init__(self, calls: int, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._calls = calls
        self._period_s = period_s
        self._clock = clock
        self._lock = threading.Lock()
        self._answered_at_s: deque[float] = deque()
        self.answered = 0
        self.refused = 0

    def admit(self) -> int:
        """Return 0 for a call that may be answered now, else the whole seconds after which to try again."""
        with self._lock:
            now_s = self._clock()
            while self._answered_at_s and now_s - self._answered_at_s[0] >= self._period_s:
                self._answered_at_s.popleft()
            if len(self._answered_at_s) < self._calls:
                self._answered_at_s.append(now_s)
                self.answered += 1
                return 0
            self.refused += 1
            return max(1, math.ceil(self._answered_at_s[0] + self._period_s - now_s))


class DocstringIndex:
    """Paragraphs of docstrings, found by their words; rare words count more."""

    def __init__(self, paragraphs: Iterator[tuple[str, str]]) -> None:
        self._paragraphs = [(place, text, set(_words(text))) for place, text in paragraphs]
        known: Counter[str] = Counter(word for _, _, words in self._paragraphs for word in words)
        self._weights = {word: math.log(len(self._paragraphs) / count) for word, count in known.items()}

    def search(self, query: str) -> list[str]:
        """Return the best paragraphs for a query, best first."""
        asked = set(_words(query))
        scored = (
            (sum(self._weights[word] for word in asked & words), place, text) for place, text, words in self._paragraphs
        )
        best = sorted((entry for entry in scored if entry[0] > 0), key=lambda entry: (-entry[0], entry[1], entry[2]))
        return [f"{place}: {text}" for _, place, text in best[:_HITS]]


def docstrings(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (place, paragraph) for the docstrings of the functions and classes in a folder."""
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
                    if paragraph.strip():
                        yield f"{path.name}:{node.name}", " ".join(paragraph.split())


class SearchHandler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    index: DocstringIndex
    limit: RateLimit

    def do_GET(self) -> None:
        """Answer a search, or the counts."""
        url = urlsplit(self.path)
        if url.path == "/counts":
            self._answer(HTTPStatus.OK, {"answered": self.limit.answered, "refused": self.limit.refused})
        elif url.path == "/search":
            self._search(" ".join(parse_qs(url.query).get("q", [])))
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "try /search?q=words"})

    def _search(self, query: str) -> None:
        retry_after_s = self.limit.admit()
        if retry_after_s:
            self._answer(HTTPStatus.TOO_MANY_REQUESTS, {"error": "too many calls"}, retry_after_s)
        else:
            self._answer(HTTPStatus.OK, {"hits": self.index.search(query)})

    def _answer(self, status: HTTPStatus, content: dict[str, object], retry_after_s: int = 0) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if retry_after_s:
            self.send_header("Retry-After", str(retry_after_s))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing; the counts tell."""


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]{3,}", text.lower())


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, required=True)
    parser.add_argument("--period-s", type=float, required=True)
    parser.add_argument("--docs", type=Path, required=True)
    options = parser.parse_args()
    SearchHandler.index = DocstringIndex(docstrings(options.docs))
    SearchHandler.limit = RateLimit(options.calls, options.period_s)
    with ThreadingHTTPServer(("127.0.0.1", 0), SearchHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_address[1], flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()

"""A server with the faults that a `ProcessService` must stand: run as `python -I -S odd_server.py PORT FAULT...`.

`/health` is its health; `/echo` answers with what it is sent, its process number and what it sees of the devices.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers."""

    faults: frozenset[str] = frozenset()

    def do_GET(self) -> None:
        if self.path == "/health":
            ill = "sick" in self.faults
            self._answer(500 if ill else 200, b'{"error": "no room"}' if ill else b"{}")
        elif self.path == "/slow":
            time.sleep(60)
        elif self.path == "/later":
            time.sleep(1)
            self._answer(200, json.dumps({"pid": os.getpid()}).encode())
        elif self.path == "/exit":
            print("out of memory", flush=True)
            os._exit(3)
        elif self.path == "/text":
            self._answer(200, b"plain", "text/plain")
        elif self.path == "/nonsense":
            self._answer(200, b"{not json")
        elif self.path == "/empty":
            self._answer(200, b"")
        elif self.path == "/aborted":
            self._answer(200, b'{"choices": [{"text": "", "finish_reason": "abort"}]}')
        else:
            self._answer(int(self.path[1:]), b"as you wish")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        told = {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "DOP")}
        self._answer(200, json.dumps({"body": body, "pid": os.getpid(), **told}).encode())

    def _answer(self, status: int, content: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


class Server(http.server.ThreadingHTTPServer):
    """Lets a crowd wait to be heard; five, as by default, is too few."""

    request_queue_size = 128


def main() -> None:
    port, faults = int(sys.argv[1]), frozenset(sys.argv[2:])
    if "exits" in faults:
        print("no such model", file=sys.stderr)
        sys.exit(4)
    if "stubborn" in faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "workers" in faults:
        worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        print("worker", worker.pid, flush=True)
    if "deaf" in faults:
        time.sleep(600)
    Handler.faults = faults
    Server(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()

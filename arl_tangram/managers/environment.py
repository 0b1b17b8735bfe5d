"""The environment of commands: a short list of the trainer's variables, the sandbox's own, and the grant."""

from __future__ import annotations

from collections.abc import Mapping

# Enough for programs to be found and to speak the same language. Everything else of the trainer stays with
# the trainer: keys of APIs, tokens, addresses of services and the settings of its own libraries.
INHERITED = (
    "PATH",
    "LD_LIBRARY_PATH",
    "LANG",
    "LANGUAGE",
    "TZ",
    "USER",
    "LOGNAME",
    "SHELL",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "JAVA_HOME",
    "GOROOT",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# pytest-xdist counts processors with psutil if it is there, which sees neither affinity nor cpuset.
GRANT_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "PYTHON_CPU_COUNT",
    "PYTEST_XDIST_AUTO_NUM_WORKERS",
)
SANDBOX_VARIABLE = "ARL_TANGRAM_SANDBOX"


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the trainer's variables that its commands get: those of the list, and `LC_*`."""
    kept = {name: value for name, value in environ.items() if name in INHERITED or name.startswith("LC_")}
    kept.setdefault("PATH", DEFAULT_PATH)
    return kept


def granted(milli_cores: int) -> dict[str, str]:
    """Return what tells programs how many threads to start: whole cores, a fraction rounded up."""
    count = str(-(-milli_cores // 1000))
    return dict.fromkeys(GRANT_VARIABLES, count)

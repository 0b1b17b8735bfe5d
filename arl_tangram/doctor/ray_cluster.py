"""A program of the doctor: join the Ray cluster at an address, and print what there is as one line of JSON."""

from __future__ import annotations

import json
import sys

from arl_tangram.integrations.ray.installed import Library, find_ray
from arl_tangram.integrations.ray.naming import shared_name


def main(address: str) -> None:
    """Join, look, and leave."""
    told: dict[str, object] = {"machines": 0, "shared": [], "error": ""}
    ray = find_ray()
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        library = Library(ray)
        told["machines"] = len(library.nodes())
        told["shared"] = sorted(found for name in library.actor_names() if (found := shared_name(name)) is not None)
        ray.shutdown()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is why
        told["error"] = " ".join(str(error).split()) or type(error).__name__
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])

from typing import Any

def default_compute_score(
    data_source: Any,
    solution_str: Any,
    ground_truth: Any,
    extra_info: Any = None,
    sandbox_fusion_url: Any = None,
    concurrent_semaphore: Any = None,
    memory_limit_mb: Any = None,
    **kwargs: Any,
) -> Any: ...

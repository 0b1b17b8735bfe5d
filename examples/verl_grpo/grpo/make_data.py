"""Write the questions: products of two numbers, as verl reads them."""

from __future__ import annotations

import pandas as pd

rows = [
    {
        "data_source": "products",
        "prompt": [{"role": "user", "content": f"What is {a} * {b}? Use the code interpreter."}],
        "reward_model": {"style": "rule", "ground_truth": str(a * b)},
        "extra_info": {"index": index, "need_tools_kwargs": False},
    }
    for index, (a, b) in enumerate((a, b) for a in range(12, 16) for b in range(21, 23))
]
pd.DataFrame(rows).to_parquet("products.parquet")

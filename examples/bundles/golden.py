"""What the scripts make_golden.py share: golden cases with values as Churon writes them."""

import json

import numpy as np

WHOLE, FIRST = 256, 8


def traced(value):
    """A value of a trace: arrays of many elements as what tells them from others."""
    if isinstance(value, dict):
        return {k: traced(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [traced(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        return value
    if value.size <= WHOLE:
        return value.tolist()
    x = value.astype(np.float64)
    mean = float(x.mean())
    spread = float((x * x).mean()) - mean * mean
    return {"dtype": str(value.dtype), "shape": list(value.shape), "mean": mean, "deviation": max(spread, 0) ** 0.5,
            "min": float(x.min()), "max": float(x.max()), "first": x.ravel()[:FIRST].tolist()}


def write(folder, cases):
    """cases: dicts of name, in, out or error, trace?"""
    with open(folder / "golden.jsonl", "w") as out:
        for case in cases:
            if "trace" in case:
                case = {**case, "trace": traced(case["trace"])}
            out.write(json.dumps(case, ensure_ascii=False) + "\n")

"""Bundles of a few steps, run by the tool run_bundle: what the tests of steps share."""

import json
import os
import pathlib
import subprocess

import numpy as np

TOP = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("CHURON", TOP / "build" / "release" / "churon")).resolve().parent / "tools" / "run_bundle"


def tensor(dtype, *shape):
    return {"type": "tensor", "dtype": dtype, "shape": list(shape)}


def plain(value):
    if isinstance(value, np.ndarray) and value.size == 0 and value.ndim > 1:
        return {"b64": "", "shape": list(value.shape)}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


MAKERS = ("into", "collect", "stack", "last", "outputs", "with", "kept")


def texts(value):
    if isinstance(value, str):
        return {value}
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*map(texts, items)) if items else set()


def makes(kind, keys):
    """Names that a step writes."""
    made = set()
    for key in MAKERS:
        if key in keys and not (key == "with" and kind != "filter") and not (key == "last" and kind != "scan"):
            made |= texts(keys[key])
    if kind == "argmax" and "value" in keys:
        made.add(keys["value"])
    return made


def left_over(steps):
    """What the steps make and no later one reads."""
    names = []
    for at, step in enumerate(steps):
        [(kind, keys)] = step.items()
        read = set()
        for later in steps[at + 1:]:
            [(_, other)] = later.items()
            read |= texts({k: list(v) if k == "with" else v for k, v in other.items() if k not in ("into", "collect", "stack", "last")})
        names += sorted(makes(kind, keys) - read)
    return names


def write(folder, inputs, steps, outputs=None, files=(), **more):
    """outputs: names; None: what no step reads. files: (name, bytes or text)."""
    manifest = {"churon": 1, "name": "case", "version": "1", "inputs": inputs, "steps": steps, **more}
    manifest["outputs"] = {name: {} for name in (left_over(steps) if outputs is None else outputs)}
    for name, content in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "bundle.yaml").write_text(json.dumps(plain(manifest), ensure_ascii=False))


def run(folder, records, mode="batch"):
    """The answers of all records in one run (batch), or one by one (single); or what their steps wrote (trace)."""
    lines = "".join(json.dumps(plain(r), ensure_ascii=False) + "\n" for r in records)
    how = {"batch": ["--batch", str(max(len(records), 1))], "single": [], "trace": ["--trace"]}[mode]
    done = subprocess.run([TOOL, str(folder), *how], input=lines, capture_output=True, text=True, timeout=120)
    got = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == (1 if got and "open" in got[0] else 0), (done.returncode, done.stderr[-2000:])
    return [g.get("trace" if mode == "trace" else "ok", g) for g in got]


def answers(folder, inputs, steps, records, outputs=None, files=(), mode="batch", **more):
    write(folder, inputs, steps, outputs, files, **more)
    got = run(folder, records, mode)
    assert not (got and "open" in got[0]), got
    return got


def one(folder, inputs, steps, record, outputs=None, files=(), **more):
    got = answers(folder, inputs, steps, [record], outputs, files, **more)[0]
    assert "error" not in got, got
    return got


def refusal(folder, inputs, steps, outputs=None, files=(), **more):
    """The message with which a bundle is refused."""
    write(folder, inputs, steps, outputs or list(inputs)[:1], files, **more)
    got = run(folder, [])
    assert got and "open" in got[0], f"opened: {got}"
    return got[0]["open"]


def number(value):
    """An answer's numbers: NaN and infinities come as text."""
    if isinstance(value, list):
        return [number(v) for v in value]
    return float(value.replace("Infinity", "inf")) if isinstance(value, str) else value

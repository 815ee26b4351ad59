"""Bundles made by tests, and tests/tools/run_bundle.c that answers their records."""

import json
import os
import pathlib
import subprocess

TOP = pathlib.Path(__file__).resolve().parents[2]


def tool():
    build = pathlib.Path(os.environ.get("CHURON", TOP / "build" / "release" / "churon")).resolve().parent
    return str(build / "tools" / "run_bundle")


def plain(v):
    """JSON has no NaN: the answers and the records write it as text."""
    if isinstance(v, float) and v != v:
        return "NaN"
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    return {k: plain(x) for k, x in v.items()} if isinstance(v, dict) else v


def write(folder, inputs, steps, outputs, head="", task="graph"):
    """A bundle.yaml in JSON's form, which YAML takes."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f"churon: 1\nname: test\nversion: 1\ntask: {task}\n{head}"
    text += f"inputs: {json.dumps(inputs)}\nsteps: {json.dumps(steps)}\noutputs: {json.dumps({o: {} for o in outputs})}\n"
    (folder / "bundle.yaml").write_text(text)
    return folder


def run(folder, records, *args):
    """The answers, {"ok": …} or {"error": …}; of a bundle that does not open [{"open": …}]."""
    lines = "".join(json.dumps(plain(r)) + "\n" for r in records)
    p = subprocess.run([tool(), str(folder), *args], input=lines.encode(), capture_output=True, timeout=120)
    assert p.returncode in (0, 1), p.stderr.decode()
    return [json.loads(line) for line in p.stdout.decode().split("\n") if line]


def answers(folder, inputs, steps, outputs, records, **more):
    """Writes, runs one by one and all together, and compares the two."""
    write(folder, inputs, steps, outputs, **more)
    got = run(folder, records)
    assert len(got) == len(records), got[:1]
    assert got == run(folder, records, "--batch", str(max(1, len(records) // 2)))
    return got

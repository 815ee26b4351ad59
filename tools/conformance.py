#!/usr/bin/env python3
"""conformance.py [--check]: runs the ONNX project's test cases and writes docs/conformance.md from what came out.

Needs the packages of tests/requirements.txt (make deps) and the program (CHURON, default build/release/churon).
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "tests" / "tools"))

import onnx  # noqa: E402
import onnx_cases  # noqa: E402

HEAD = """# Conformance

The ONNX project publishes test cases: a model, inputs, and the outputs that they must give. This page says how many of
them Churon passes and why each of the others does not. It is written by `tools/conformance.py`; nothing in it is typed by hand.

- Cases: those of the PyPI package `onnx` {version}. Node cases are built in memory by that package.
- Tolerance: relative 1e-3, absolute 1e-7, for float types; everything else must be equal. NaN equals NaN.
- Every case runs three times in one session: memory taken as it comes, watched, and planned.
- Command for a folder of cases: `churon verify --onnx-suite DIR`.

| Cases | passed | of | part |
|---|---:|---:|---:|
"""

# Why a group of failures is there, by what the reason says. The first that matches counts.
REASONS = [
    (r"training_mode|Momentum|Adagrad|Adam\b|Gradient", "The model trains. Training is refused, with what to change."),
    (r"bernoulli", "Random numbers: the case expects one generator's draws, the standard names none."),
    (r"image_decoder", "An image format that is not decoded."),
    (r"bf16|fp16", "Half precision: the case holds every step's rounding of the reference, in its order of sums."),
    (r"dft_inverse", "The expected number is the reference's rounding error around zero, above the absolute tolerance."),
    (r"missing operators", "The operator is not there yet."),
    (r"", "Other"),
]


def run(folder):
    churon = os.environ.get("CHURON", str(TOP / "build" / "release" / "churon"))
    p = subprocess.run([churon, "verify", "--onnx-suite", str(folder), "--json"], capture_output=True, text=True, check=False)
    if p.returncode not in (0, 1):
        sys.exit(f"conformance.py: {churon} ended with {p.returncode}: {p.stderr}")
    return json.loads(p.stdout)


def group_of(case):
    return next(text for pattern, text in REASONS if re.search(pattern, case["name"] + " " + case["why"]))


def why(case):
    # Draws differ from run to run; the page does not.
    return re.sub(r"element \d+ of|expected \d, got \d", "…", case["why"]) if "bernoulli" in case["name"] else case["why"]


def page():
    rows, failures = [], collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        onnx_cases.write_node_cases(folder)
        for kind in ("node", *onnx_cases.OTHERS):
            told = run(folder if kind == "node" else onnx_cases.packaged_cases(kind))
            total = len(told["cases"])
            rows.append(f"| {kind} | {told['passed']} | {total} | {100 * told['passed'] / total:.1f} % |")
            for case in told["cases"]:
                if not case["ok"]:
                    failures[group_of(case)].append(case)
    lines = [HEAD.format(version=onnx.__version__) + "\n".join(rows), "", "## What does not pass"]
    for _, text in REASONS:
        if failures[text]:
            lines += ["", f"### {text}", ""]
            lines += [f"- `{c['name']}`: {why(c)}" for c in sorted(failures[text], key=lambda c: c["name"])]
    return "\n".join(lines) + "\n"


def main():
    target = TOP / "docs" / "conformance.md"
    text = page()
    if "--check" in sys.argv[1:]:
        if not target.exists() or target.read_text() != text:
            sys.exit("conformance.py: docs/conformance.md is not what the program does now. Run tools/conformance.py.")
    else:
        target.write_text(text)


if __name__ == "__main__":
    main()

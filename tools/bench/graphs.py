"""graphs.py [NAME...] [--threads 1,2] [--rounds N] [--no-openvino]: Churon beside ONNX Runtime and OpenVINO (where it is
installed) on the nets and models of graph_nets.py, in turns, each in a process of its own; denormals are zero on all
sides, OpenVINO computes in f32. Figures go to build/bench/graphs.json as they come, so that a table may be made in
several calls; the table of all figures there goes to build/bench/graphs.md and stdout. Environment: CHURON, GRAPH_MODELS,
PEER_PYTHON (a Python that has the peers)."""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import graph_nets

TOP = pathlib.Path(__file__).resolve().parents[2]
OUT = TOP / "build/bench"
CHURON = os.environ.get("CHURON", str(TOP / "build/release/churon"))
PYTHON = os.environ.get("PEER_PYTHON", sys.executable)
SECONDS = 0.5  # of runs that a side gets in a round


def say(text):
    print(text, file=sys.stderr, flush=True)


def peak_of(pid):
    """Bytes that the process, which still runs, has held at most. (The kernel's own count at its end begins with what
    its parent held.)"""
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def run_child(command):
    """What it printed and its peak memory; None where it failed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child, peak = subprocess.Popen(command, stdout=out, stderr=err), 0
        while child.poll() is None:
            peak = max(peak, peak_of(child.pid))
            time.sleep(0.02)
        out.seek(0)
        err.seek(0)
        if child.returncode != 0:
            lines = err.read().decode(errors="replace").strip().splitlines() or ["no message"]
            say(f"{pathlib.Path(command[0]).name}: {lines[-1][:200]}")
            return None, 0
        return json.loads(out.read()), peak


class Case:
    def __init__(self, name, path, feeds, work):
        self.name, self.path = name, str(path)
        feeds = feeds(np.random.default_rng(0))
        self.npz = str(work / "feeds.npz")
        np.savez(self.npz, **{k or "_": v for k, v in feeds.items()})
        self.inputs = []
        for i, (k, v) in enumerate(feeds.items()):
            file = work / f"{i}.npy"
            np.save(file, v)
            self.inputs += ["--input", f"{k or self.only_input()}={file}"]

    def only_input(self):
        import onnx
        graph = onnx.load(self.path, load_external_data=False).graph
        constants = {i.name for i in graph.initializer}
        return next(i.name for i in graph.input if i.name not in constants)

    def ours(self, threads, runs):
        told, peak = run_child([CHURON, "bench", self.path, "--threads", str(threads), "--reps", str(runs), "--json",
                                "--quiet", *self.inputs])
        if not told:
            return None
        row = told["rows"][0]
        return {"ms": [row["ms_median"]], "load_s": row["load_s"], "peak_bytes": peak,
                "peak_fraction": row.get("peak_fraction"), "slowest": row.get("slowest")}

    def peer(self, which, threads, runs):
        return run_child([PYTHON, str(pathlib.Path(__file__).parent / "graph_peer.py"), which, self.path, self.npz,
                          str(threads), str(runs)])[0]


def measure(case, threads, rounds, peers):
    """{side: figures}: the median over rounds of each round's median."""
    sides = {"churon": lambda runs: case.ours(threads, runs)}
    for which in peers:
        sides[which] = lambda runs, which=which: case.peer(which, threads, runs)
    first = sides["churon"](3)
    if not first:
        return None
    runs = max(3, min(400, int(SECONDS / (first["ms"][0] / 1e3))))
    taken = {s: [] for s in sides}
    for _ in range(rounds):
        for s, run in list(sides.items()):
            got = run(runs)
            if got:
                taken[s].append(got)
            else:
                del sides[s]
    row = {}
    for s, list_ in taken.items():
        if not list_:
            continue
        row[s] = dict(list_[-1], ms=statistics.median(statistics.median(x["ms"]) for x in list_),
                      load_s=min(x["load_s"] for x in list_), peak_bytes=min(x["peak_bytes"] for x in list_))
    return row


def cell(row, side, field, digits="{:.2f}", by=1.0):
    return digits.format(row[side][field] * by) if side in row and row[side].get(field) is not None else ""


def ratio(row, side, field="ms"):
    return row[side][field] / row["churon"][field] if side in row and "churon" in row else None


def mean(numbers):
    return math.exp(statistics.fmean(math.log(x) for x in numbers)) if numbers else float("nan")


def table(figures):
    lines = ["| model | threads | churon, ms | of the peak | ONNX Runtime, ms | ratio | OpenVINO, ms | ratio | load, ms | theirs | "
             "memory, MB | theirs |", "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for threads in sorted({f["threads"] for f in figures}):
        rows = [f for f in figures if f["threads"] == threads]
        for f in rows:
            row = f["sides"]
            a, b = ratio(row, "onnxruntime"), ratio(row, "openvino")
            lines.append("| " + " | ".join([
                f["name"], str(threads), cell(row, "churon", "ms"), cell(row, "churon", "peak_fraction", "{:.0f} %", 100),
                cell(row, "onnxruntime", "ms"), f"{a:.2f}" if a else "", cell(row, "openvino", "ms"), f"{b:.2f}" if b else "",
                cell(row, "churon", "load_s", "{:.0f}", 1e3), cell(row, "onnxruntime", "load_s", "{:.0f}", 1e3),
                cell(row, "churon", "peak_bytes", "{:.0f}", 1e-6), cell(row, "onnxruntime", "peak_bytes", "{:.0f}", 1e-6),
            ]) + " |")
        against = [r for f in rows if (r := ratio(f["sides"], "onnxruntime"))]
        other = [r for f in rows if (r := ratio(f["sides"], "openvino"))]
        better = [min(r for r in (ratio(f["sides"], s) for s in ("onnxruntime", "openvino")) if r) for f in rows
                  if len(f["sides"]) > 1]
        lines.append(f"| **geometric mean** | {threads} | | | | **{mean(against):.2f}** | | **{mean(other):.2f}** | | | | |")
        lines.append(f"| against the better one | {threads} | | | | **{mean(better):.2f}** | | | | | | |")
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("names", nargs="*")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--no-openvino", action="store_true")
    p.add_argument("--table", action="store_true", help="only print the table of what was measured")
    a = p.parse_args()
    store = OUT / "graphs.json"
    figures = json.loads(store.read_text()) if store.exists() else []
    peers = ["onnxruntime"]
    has = subprocess.run([PYTHON, "-c", "import openvino"], capture_output=True).returncode == 0
    if not a.no_openvino and has:
        peers.append("openvino")
    OUT.mkdir(parents=True, exist_ok=True)
    for name, path, feeds in graph_nets.cases(OUT / "nets", a.names) if not a.table else ():
        if path is None:
            continue
        with tempfile.TemporaryDirectory() as work:
            case = Case(name, path, feeds, pathlib.Path(work))
            for threads in (int(t) for t in a.threads.split(",")):
                row = measure(case, threads, a.rounds, peers)
                if not row:
                    continue
                say(f"{name}, {threads}: " + ", ".join(f"{s} {f['ms']:.3f} ms" for s, f in row.items()))
                figures = [f for f in figures if (f["name"], f["threads"]) != (name, threads)]
                figures.append({"name": name, "threads": threads, "sides": row})
                store.write_text(json.dumps(figures, indent=1))
    whole = [f for f in figures if " int8" not in f["name"]]
    text = "\n\n".join(table(part) for part in (whole, [f for f in figures if " int8" in f["name"]]) if part)
    (OUT / "graphs.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()

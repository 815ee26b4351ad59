"""Bundles: what a record costs around the model, a page of text beside the package rapidocr, opening a pack.

tools/bench.sh bundles prints the table. The bundles come from `make bundles`; RapidOCR is measured where the package
is installed (pip install rapidocr==3.10.0), in turns, with the same threads, and its text is compared."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
CHURON = os.environ.get("CHURON", str(TOP / "build" / "release" / "churon"))
BUNDLES = TOP / "build" / "bundles"
THREADS = 2


def call(*args, **more):
    return json.loads(subprocess.run([CHURON, *map(str, args), "--json"], capture_output=True, text=True, check=True, **more).stdout)


def record_row():
    record = json.loads((TOP / "examples" / "bundles" / "churn" / "golden.jsonl").read_text().splitlines()[0])["in"]
    rows = call("bench", BUNDLES / "churn", "--record", json.dumps(record), "--batch", "1,100")["rows"]
    for r in rows:
        yield (f"a customer of the bundle churn, {r['batch']} together, JSON to answer",
               f"{r['ms_median'] / r['batch'] * 1e3:.1f} us", f"around the model {r['around_model_ms'] / r['batch'] * 1e3:.1f} us")


def page(path):
    import cv2
    import numpy as np

    a = np.full((1100, 850, 3), 245, np.uint8)
    for i in range(24):
        cv2.putText(a, f"Line {i} the quick brown fox jumps over {i * 37}", (40, 60 + i * 42), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (20, 20, 20), 2)
    cv2.imwrite(str(path), a)


def page_row(rounds=int(os.environ.get("ROUNDS", 5))):
    with tempfile.TemporaryDirectory() as folder:
        image = pathlib.Path(folder) / "page.png"
        page(image)
        ours, theirs, engine, texts = [], [], None, None
        if importlib.util.find_spec("rapidocr"):
            from rapidocr import RapidOCR

            engine = RapidOCR(params={"EngineConfig.onnxruntime.intra_op_num_threads": THREADS})
            texts = list(engine(str(image)).txts)
        for _ in range(rounds):
            ours.append(call("bench", BUNDLES / "rapidocr", "-i", image, "--reps", 3, "--threads", THREADS)["rows"][0]["ms_median"])
            if engine:
                start = time.perf_counter()
                engine(str(image))
                theirs.append((time.perf_counter() - start) * 1e3)
        got = call("run", BUNDLES / "rapidocr", "-i", image, "--threads", THREADS)["outputs"]["texts"]
        beside = f"RapidOCR {min(theirs):.0f} ms: {min(theirs) / min(ours):.2f}x; {sum(a == b for a, b in zip(got, texts))} of {len(texts)} lines equal" \
            if engine else "RapidOCR is not installed"
        yield f"a page of 24 lines, {THREADS} threads", f"{min(ours):.0f} ms", beside


def pack_row():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "b").mkdir()
        (folder / "home").mkdir()  # without a store nothing is remembered
        (folder / "b" / "bundle.yaml").write_text("churon: 1\nname: big\nversion: 1\ninputs: {a: {type: int}}\nsteps: []\noutputs: {a: {}}\n")
        (folder / "b" / "weights.bin").write_bytes(os.urandom(100 << 20))
        env = {**os.environ, "CHURON_HOME": str(folder / "home")}
        subprocess.run([CHURON, "pack", str(folder / "b"), "-o", str(folder / "b.churon"), "--quiet"], check=True, env=env, stdout=subprocess.DEVNULL)
        took = [call("run", folder / "b.churon", "--record", '{"a": 1}', env=env)["timing"]["load_s"] * 1e3 for _ in range(6)]
        yield "opening a pack of 100 MB", f"{min(took[1:]):.1f} ms", f"the first time, with its digests: {took[0]:.0f} ms"


def main():
    print("| measured | churon | |\n|---|--:|---|")
    for rows in (record_row, page_row, pack_row):
        for row in rows():
            print("| " + " | ".join(row) + " |", flush=True)


sys.exit(main())

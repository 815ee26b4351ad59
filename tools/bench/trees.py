#!/usr/bin/env python3
"""trees.py [NAME...] [--threads N] [--rounds N]: microseconds a run of tree ensembles and of a tabular pipeline, in turns with ONNX Runtime,
with the library that trained the model and, where it is installed, with lleaves (LightGBM models compiled by LLVM; it needs llvmlite before 0.45). Other rows each time.

Models are trained here with fixed seeds, once (some minutes), and stay in build/bench/trees: 1,000 trees on 50 features, of LightGBM (depth 7,
63 leaves), XGBoost (depth 6), scikit-learn's random forest (depth 8) and gradient boosting (depth 6); a pipeline that scales eight numbers,
looks four words up and takes a logistic regression. Needs build/release/tools/graph_time; figures go to build/bench/trees.json."""

import argparse
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import time
import warnings

import numpy as np
import onnx
import onnxruntime

TOP = pathlib.Path(__file__).resolve().parents[2]
TOOL = TOP / "build" / "release" / "tools" / "graph_time"
FOLDER = TOP / "build" / "bench" / "trees"
SECONDS = 0.2


# ---- models ----------------------------------------------------------------------------------------------


def rows_and_classes():
    from sklearn.datasets import make_classification
    x, y = make_classification(n_samples=40_000, n_features=50, n_informative=25, n_redundant=10, n_clusters_per_class=4, flip_y=0.05, random_state=0)
    return x.astype(np.float32), y


def train_lightgbm(x, y):
    import lightgbm
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType
    m = lightgbm.LGBMClassifier(n_estimators=1000, max_depth=7, num_leaves=63, learning_rate=0.02, random_state=0, deterministic=True,
                                force_row_wise=True, verbose=-1).fit(x, y)
    m.booster_.save_model(FOLDER / "lightgbm.txt")
    return onnxmltools.convert_lightgbm(m, initial_types=[("X", FloatTensorType([None, 50]))], target_opset=15, zipmap=False)


def train_xgboost(x, y):
    import onnxmltools
    import xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType
    m = xgboost.XGBClassifier(n_estimators=1000, max_depth=6, learning_rate=0.03, random_state=0, tree_method="hist").fit(x, y)
    m.save_model(FOLDER / "xgboost.json")
    return onnxmltools.convert_xgboost(m, initial_types=[("X", FloatTensorType([None, 50]))], target_opset=15)


def train_forest(x, y):
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestClassifier
    m = RandomForestClassifier(n_estimators=1000, max_depth=8, random_state=0, n_jobs=2).fit(x[:10_000], y[:10_000])
    return to_onnx(m, x[:1], options={"zipmap": False}, target_opset=18)


def train_boosting(x, y):
    from skl2onnx import to_onnx
    from sklearn.ensemble import GradientBoostingClassifier
    m = GradientBoostingClassifier(n_estimators=1000, max_depth=6, learning_rate=0.03, subsample=0.5, max_features=10, random_state=0)
    return to_onnx(m.fit(x[:10_000], y[:10_000]), x[:1], options={"zipmap": False}, target_opset=18)


def train_pipeline(zipmap):
    import pandas
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    rng, n = np.random.default_rng(0), 15_000
    words = {"city": [f"city {i}" for i in range(200)], "device": ["ios", "android", "web", "tv"],
             "plan": ["free", "basic", "pro", "team", "enterprise"], "country": [f"C{i:02d}" for i in range(40)]}
    numbers = [f"f{i}" for i in range(8)]
    table = pandas.DataFrame({f: rng.normal(i, 1 + i, n).astype(np.float32) for i, f in enumerate(numbers)} |
                             {k: rng.choice(v, n) for k, v in words.items()})
    m = Pipeline([("columns", ColumnTransformer([("scale", StandardScaler(), numbers), ("words", OneHotEncoder(handle_unknown="ignore"), list(words))])),
                  ("model", LogisticRegression(max_iter=500))]).fit(table, (table.f0 + rng.logistic(0, 1, n) > 0).astype(int))
    types = [(f, FloatTensorType([None, 1])) for f in numbers] + [(w, StringTensorType([None, 1])) for w in words]
    return convert_sklearn(m, initial_types=types, target_opset=18, options={} if zipmap else {"zipmap": False})


MODELS = {"lightgbm": train_lightgbm, "xgboost": train_xgboost, "forest": train_forest, "boosting": train_boosting,
          "pipeline": lambda *_: train_pipeline(False), "pipeline, maps": lambda *_: train_pipeline(True)}


def path_of(name):
    """The model, trained at the first call."""
    path = FOLDER / f"{name.replace(', ', '_')}.onnx"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        x, y = rows_and_classes()
        np.save(FOLDER / "X.npy", x[30_000:])
        print(f"training {name}", file=sys.stderr, flush=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            onnx.save(MODELS[name](x[:30_000], y[:30_000]), path)
    return path


# ---- sides: microseconds of a run on `rows` rows --------------------------------------------------------------


def timed(run, x, rows):
    taken, at, end = [], 0, time.perf_counter() + SECONDS
    while time.perf_counter() < end or not taken:
        part = x[at:at + rows]
        at = at + rows if at + 2 * rows <= len(x) else 0
        start = time.perf_counter()
        run(part)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e6


def churon_side(model, threads):
    def one(x, rows):
        done = subprocess.run([TOOL, model, FOLDER / "X.npy", str(rows), str(SECONDS), str(threads)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{model}: {done.stderr.strip()}")
        return float(done.stdout)
    return one


def onnxruntime_side(model, threads):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs = session.get_inputs()
    kinds = {"tensor(float)": lambda i: np.full((1, 1), 0.5 * i, np.float32), "tensor(string)": lambda i: np.array([["ios"]])}
    if len(inputs) > 1:
        feed = {v.name: kinds[v.type](i) for i, v in enumerate(inputs)}
        return lambda x, rows: timed(lambda part: session.run(None, feed), x, rows)
    return lambda x, rows: timed(lambda part: session.run(None, {inputs[0].name: part}), x, rows)


def own_side(name, threads):
    """The library that trained it, or None."""
    if name == "xgboost":
        import xgboost
        booster = xgboost.Booster({"nthread": threads}, model_file=str(FOLDER / "xgboost.json"))
        return lambda x, rows: timed(booster.inplace_predict, x, rows)
    if name == "lightgbm":
        import lightgbm
        booster = lightgbm.Booster(model_file=FOLDER / "lightgbm.txt")
        return lambda x, rows: timed(lambda part: booster.predict(part, num_threads=threads), x, rows)
    return None


def lleaves_side(name, threads):
    if name != "lightgbm" or not importlib.util.find_spec("lleaves"):
        return None
    import lleaves
    compiled = lleaves.Model(model_file=FOLDER / "lightgbm.txt")
    compiled.compile(cache=FOLDER / "lightgbm.lleaves")
    return lambda x, rows: timed(lambda part: compiled.predict(part, n_jobs=threads), x, rows)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    figures = []
    print("| model | rows | churon, µs | a row | ONNX Runtime | times | its own library | times | lleaves | times |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name in a.names or MODELS:
        model = path_of(name)
        x = np.load(FOLDER / "X.npy")
        sides = {"churon": churon_side(model, a.threads), "onnxruntime": onnxruntime_side(model, a.threads),
                 "own": own_side(name, a.threads), "lleaves": lleaves_side(name, a.threads)}
        sides = {k: v for k, v in sides.items() if v}
        for rows in (1,) if name.startswith("pipeline") else (1, 100, 1000, 10_000):
            taken = {k: [] for k in sides}
            for _ in range(a.rounds):
                for k, run in sides.items():
                    taken[k].append(run(x, rows))
            best = {k: min(v) for k, v in taken.items()}
            figures.append({"model": name, "rows": rows, "threads": a.threads, "us": best})
            cells = [f"{best[k]:,.1f} | {best[k] / best['churon']:.1f}" if k in best else " | " for k in ("onnxruntime", "own", "lleaves")]
            print(f"| {name} | {rows:,} | {best['churon']:,.1f} | {best['churon'] / rows:.2f} | {' | '.join(cells)} |", flush=True)
    (FOLDER.parent / "trees.json").write_text(json.dumps(figures, indent=1))


main()

"""XGBoost and LightGBM, exported by onnxmltools, against the libraries' own predictions; and trees of every form
under every instruction set against the walk that the standard defines."""

import os
import warnings

import numpy as np
import pytest

xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed: its models are not compared")
lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed: its models are not compared")
onnxmltools = pytest.importorskip("onnxmltools", reason="onnxmltools is not installed: boosted trees are not compared")

from ml_case import node_model, verify, write  # noqa: E402
from onnx import TensorProto  # noqa: E402
from onnxmltools.convert.common.data_types import FloatTensorType  # noqa: E402
from sklearn import datasets  # noqa: E402

warnings.filterwarnings("ignore")
ISAS = ("avx512", "avx2", "ref")


def rows_and_labels(classes=2, missing=False):
    x, y = datasets.make_classification(400, 10, n_informative=6, n_classes=classes, random_state=4)
    x = x.astype(np.float32)
    if missing:
        x[np.random.default_rng(1).random(x.shape) < 0.15] = np.nan
    return x, y


def check(churon, folder, exported, x, outputs):
    write(folder, exported, [x], outputs)
    for isa in ISAS:
        wrong = verify(churon, folder, 1e-5, 1e-5, {**os.environ, "CHURON_CPU": isa})
        assert wrong is None or "CHURON_CPU: expected an instruction set of this processor" in wrong, (isa, wrong)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("depth", [3, 6, 8])
def test_xgboost_classes(churon, tmp_path, classes, depth, missing):
    x, y = rows_and_labels(classes, missing)
    model = xgboost.XGBClassifier(n_estimators=25, max_depth=depth, n_jobs=1, random_state=0, base_score=0.5).fit(x, y)
    exported = onnxmltools.convert_xgboost(model, initial_types=[("X", FloatTensorType([None, 10]))], target_opset=15)
    check(churon, tmp_path, exported, x[:60], [model.predict(x[:60]).astype(np.int64), model.predict_proba(x[:60])])


@pytest.mark.parametrize("missing", [False, True])
def test_xgboost_values(churon, tmp_path, missing):
    x, y = rows_and_labels(missing=missing)
    target = (y + np.nan_to_num(x[:, 0])).astype(np.float32)
    model = xgboost.XGBRegressor(n_estimators=30, max_depth=5, n_jobs=1, random_state=0, base_score=0.25).fit(x, target)
    exported = onnxmltools.convert_xgboost(model, initial_types=[("X", FloatTensorType([None, 10]))], target_opset=15)
    check(churon, tmp_path, exported, x[:60], [model.predict(x[:60]).reshape(-1, 1)])


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("leaves,depth", [(31, -1), (63, 7), (7, 3)])
def test_lightgbm_classes(churon, tmp_path, classes, leaves, depth, missing):
    x, y = rows_and_labels(classes, missing)
    model = lightgbm.LGBMClassifier(n_estimators=25, num_leaves=leaves, max_depth=depth, min_child_samples=3, n_jobs=1,
                                    random_state=0, verbose=-1).fit(x, y)
    exported = onnxmltools.convert_lightgbm(model, initial_types=[("X", FloatTensorType([None, 10]))], target_opset=15,
                                            zipmap=False)
    check(churon, tmp_path, exported, x[:60], [model.predict(x[:60]), model.predict_proba(x[:60]).astype(np.float32)])


def test_lightgbm_values(churon, tmp_path):
    x, y = rows_and_labels(missing=True)
    for i, objective in enumerate(("regression", "poisson", "huber")):
        model = lightgbm.LGBMRegressor(n_estimators=20, objective=objective, n_jobs=1, verbose=-1).fit(x, y)
        exported = onnxmltools.convert_lightgbm(model, initial_types=[("X", FloatTensorType([None, 10]))], target_opset=15)
        check(churon, tmp_path / str(i), exported, x[:60], [model.predict(x[:60]).reshape(-1, 1).astype(np.float32)])


# ---- random trees ---------------------------------------------------------------------------------------------------

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def random_tree(rng, depth, features, modes, steps):
    """Nested tuples: (mode, feature, value, missing, yes, no), or a weight."""
    if depth == 0 or rng.random() < 0.15:
        return float(np.float32(rng.normal()))
    return (int(rng.choice(modes)), int(rng.integers(features)), float(rng.integers(steps)) / 4 - 8, bool(rng.integers(2)),
            random_tree(rng, depth - 1, features, modes, steps), random_tree(rng, depth - 1, features, modes, steps))


def walk(node, x):
    while isinstance(node, tuple):
        mode, feature, value, missing, yes, no = node
        v = x[feature]
        truth = (v <= value, v < value, v >= value, v > value, v == value, v != value)[mode]
        node = yes if truth or (np.isnan(v) and missing) else no
    return node


def flatten(trees):
    lists = {k: [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
                             "missing_value_tracks_true")}
    leaves = []

    def add(tree, node, counter):
        number = next(counter)
        at = len(lists["treeids"])
        leaf = not isinstance(node, tuple)
        row = (tree, number, 0, 0.0, "LEAF", 0, 0, 0) if leaf else (tree, number, node[1], node[2], MODES[node[0]], 0, 0, int(node[3]))
        for key, v in zip(lists, row):
            lists[key].append(v)
        if leaf:
            leaves.append((tree, number, node))
        else:
            lists["truenodeids"][at] = add(tree, node[4], counter)
            lists["falsenodeids"][at] = add(tree, node[5], counter)
        return number

    for t, tree in enumerate(trees):
        add(t, tree, iter(range(10**6)))
    return {f"nodes_{k}": v for k, v in lists.items()}, leaves


@pytest.mark.parametrize("depth,features,modes,steps", [
    (1, 1, (0,), 8), (3, 5, (0,), 64), (5, 40, (1,), 64), (6, 60, (0, 1, 2, 3), 64), (7, 64, (0, 1), 64),
    (8, 100, (2, 3), 64), (6, 128, (0,), 64), (7, 6, (0, 1, 2, 3), 2000), (8, 60, (0,), 2000), (6, 20, (0, 4, 5), 64),
    (12, 10, (0, 1), 64), (5, 300, (0,), 64),
])
def test_random_trees(churon, tmp_path, depth, features, modes, steps):
    """Values lie on thresholds, beside them, and are missing: the same sum as the definition's, in double."""
    rng = np.random.default_rng(depth * 1000 + features)
    trees = [random_tree(rng, depth, features, modes, steps) for _ in range(40)]
    nodes, leaves = flatten(trees)
    x = (rng.integers(0, steps, (45, features)) / 4 - 8).astype(np.float32)
    x[rng.random(x.shape) < 0.2] += np.float32(0.125)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[0] = np.inf
    x[1] = -np.inf
    want = np.array([sum(walk(t, row) for t in trees) for row in x], np.float32).reshape(-1, 1)
    model = node_model("TreeEnsembleRegressor", [("X", TensorProto.FLOAT)], [("Y", TensorProto.FLOAT)], version=1,
                       n_targets=1, target_treeids=[a for a, _, _ in leaves], target_nodeids=[b for _, b, _ in leaves],
                       target_ids=[0] * len(leaves), target_weights=[c for _, _, c in leaves], **nodes)
    check(churon, tmp_path, model, x, [want])
    for isa in ISAS:  # not a bit apart: the sums are in double and in one order
        wrong = verify(churon, tmp_path, 0, 0, {**os.environ, "CHURON_CPU": isa})
        assert wrong is None or "instruction set of this processor" in wrong, (isa, wrong)


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_aggregates(churon, tmp_path, how):
    rng = np.random.default_rng(5)
    trees = [random_tree(rng, 4, 6, (0, 1), 64) for _ in range(9)]
    nodes, leaves = flatten(trees)
    x = (rng.integers(0, 64, (30, 6)) / 4 - 8).astype(np.float32)
    values = np.array([[walk(t, row) for t in trees] for row in x])
    per_target = values.reshape(30, 3, 3)  # tree t adds to target t // 3
    want = {"SUM": per_target.sum(2), "AVERAGE": per_target.sum(2) / 9, "MIN": per_target.min(2), "MAX": per_target.max(2)}[how]
    model = node_model("TreeEnsembleRegressor", [("X", TensorProto.FLOAT)], [("Y", TensorProto.FLOAT)], version=1,
                       n_targets=3, aggregate_function=how, base_values=[0.5, 1.0, -2.0],
                       target_treeids=[a for a, _, _ in leaves], target_nodeids=[b for _, b, _ in leaves],
                       target_ids=[a // 3 for a, _, _ in leaves], target_weights=[c for _, _, c in leaves], **nodes)
    check(churon, tmp_path, model, x, [(want + [0.5, 1.0, -2.0]).astype(np.float32)])

"""Trees drawn at random against ONNX Runtime: every comparison, sets of members, missing values, aggregates and functions of the
sums, in the operators before version 5 and in TreeEnsemble; and TreeEnsemble against a walk over its nodes."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime", reason="skip: onnxruntime is not installed")

from ml_case import node_model, verify, write  # noqa: E402
from onnx import TensorProto as T  # noqa: E402
from onnx import numpy_helper  # noqa: E402

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
COLUMNS = 4


def grow(rng, depth):
    """('leaf', ) or (column, value, mode, missing goes to true, yes, no)."""
    if depth == 0 or rng.random() < 0.15:
        return ("leaf",)
    value = float(rng.integers(-4, 5)) / 2
    return (int(rng.integers(COLUMNS)), value, int(rng.integers(len(MODES))), int(rng.integers(2)), grow(rng, depth - 1), grow(rng, depth - 1))


def place(tree, out):
    """Puts the nodes into `out`, in order; gives the place of the first."""
    at = len(out)
    out.append(tree)
    if tree[0] != "leaf":
        yes = place(tree[4], out)
        out[at] = (*tree[:4], yes, place(tree[5], out))
    return at


def forest(rng, n_trees, modes, tracks, n_targets, weight):
    """Attributes of the old operators, and the leaves' share named `weight` (class or target)."""
    a = {k: [] for k in ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes", "nodes_truenodeids",
                         "nodes_falsenodeids", "nodes_missing_value_tracks_true")}  # fmt: skip
    w = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    for t in range(n_trees):
        nodes = []
        place(grow(rng, 4), nodes)
        for i, node in enumerate(nodes):
            leaf = node[0] == "leaf"
            mode = "LEAF" if leaf else modes[node[2] % len(modes)]
            row = (t, i, 0 if leaf else node[0], 0.0 if leaf else node[1], mode, 0 if leaf else node[4], 0 if leaf else node[5], 0 if leaf else node[3])
            for key, value in zip(a, row):
                a[key].append(value)
            for target in range(n_targets) if leaf else ():
                if n_targets == 1 or rng.random() < 0.7 or target == 0:
                    for key, value in zip(w, (t, i, target, float(np.float32(rng.normal())))):
                        w[key].append(value)
    if not tracks:
        del a["nodes_missing_value_tracks_true"]
    return a, {f"{weight}_{k}": v for k, v in w.items()}


def rows(rng, kind):
    x = (rng.integers(-8, 9, (40, COLUMNS)) / 4).astype(kind)
    x[rng.random(x.shape) < 0.08] = np.nan
    return x


def check(churon, folder, model, x, atol=1e-5):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    write(folder, model, [x], session.run(None, {"x": x}))
    wrong = verify(churon, folder, atol, 1e-5)
    assert wrong is None, wrong


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regressor(churon, tmp_path, seed, aggregate):
    rng = np.random.default_rng(seed)
    targets = int(rng.integers(1, 4))
    modes = MODES if seed % 2 else [MODES[seed // 2 % 6]]  # ONNX Runtime has ways of its own where all are alike
    attrs, weights = forest(rng, int(rng.integers(1, 30)), modes, seed % 3 == 0, targets, "target")
    more = {"base_values": [float(v) for v in np.float32(rng.normal(size=targets))]} if seed % 4 == 1 else {}
    post = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"][seed // 4 % 4 if targets > 1 else 0]
    model = node_model("TreeEnsembleRegressor", [("x", T.FLOAT)], [("y", T.FLOAT)], n_targets=targets, aggregate_function=aggregate,
                       post_transform=post, **attrs, **weights, **more)  # fmt: skip
    check(churon, tmp_path, model, rows(rng, np.float32))


@pytest.mark.parametrize("seed", range(24))
def test_classifier(churon, tmp_path, seed):
    rng = np.random.default_rng(100 + seed)
    classes = int(rng.integers(2, 5))
    one = classes == 2  # by one column of weights: of two ONNX Runtime gives numbers 0 and 1, whatever the labels are
    attrs, weights = forest(rng, int(rng.integers(1, 20)), MODES, seed % 3 == 0, 1 if one else classes, "class")
    labels = {"classlabels_int64s": [int(v) for v in rng.permutation(9)[:classes]]}
    kind = T.INT64
    if seed % 4 == 3:
        labels, kind = {"classlabels_strings": [f"c{i}" for i in range(classes)]}, T.STRING
    post = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"][seed % (2 if one else 4)]  # of one it leaves softmax out
    model = node_model("TreeEnsembleClassifier", [("x", T.FLOAT)], [("label", kind), ("scores", T.FLOAT)], post_transform=post, **attrs, **weights, **labels)
    check(churon, tmp_path, model, rows(rng, np.float32))


@pytest.mark.parametrize("seed", range(6))
def test_doubles(churon, tmp_path, seed):
    """Thresholds that f32 cannot hold, in tensors of the double form."""
    rng = np.random.default_rng(200 + seed)
    attrs, weights = forest(rng, 5, MODES[:4], False, 1, "target")
    attrs["nodes_values_as_tensor"] = numpy_helper.from_array(np.array(attrs.pop("nodes_values")) + 1e-12, "v")
    weights["target_weights_as_tensor"] = numpy_helper.from_array(np.array(weights.pop("target_weights")), "w")
    model = node_model("TreeEnsembleRegressor", [("x", T.DOUBLE)], [("y", T.FLOAT)], n_targets=1, **attrs, **weights)
    x = rows(rng, np.float64)
    x[::2] += 1e-12
    x[1::4] += 2e-12
    check(churon, tmp_path, model, x)


# ---- TreeEnsemble -------------------------------------------------------------------------------------------

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
COMPARE = {LEQ: np.less_equal, LT: np.less, GTE: np.greater_equal, GT: np.greater, EQ: np.equal, NEQ: np.not_equal}


class Ensemble:
    """Random trees in TreeEnsemble's lists, and the walk over them."""

    def __init__(self, rng, n_trees, targets, members):
        self.rng, self.targets, self.members = rng, targets, members
        self.nodes, self.leaves, self.roots = [], [], []
        for _ in range(n_trees):
            at, leaf = self.branch(4)
            if leaf:  # a tree that is one leaf is a branch both of whose ways end in it
                at, self.nodes = len(self.nodes), [*self.nodes, [0, 0.0, LEQ, 0, at, 1, at, 1, ()]]
            self.roots.append(at)

    def leaf(self):
        self.leaves.append((int(self.rng.integers(self.targets)), float(np.float32(self.rng.normal()))))
        return len(self.leaves) - 1, True

    def branch(self, depth):
        rng = self.rng
        if depth == 0 or (depth < 4 and rng.random() < 0.15):
            return self.leaf()
        at = len(self.nodes)
        mode = int(rng.integers(7 if self.members else 6))
        chosen = tuple(sorted(float(v) / 2 for v in rng.choice(17, int(rng.integers(1, 6)), replace=False) - 8)) if mode == MEMBER else ()
        self.nodes.append([int(rng.integers(COLUMNS)), float(rng.integers(-4, 5)) / 2, mode, int(rng.integers(2)), 0, 0, 0, 0, chosen])
        self.nodes[at][4:6] = self.branch(depth - 1)
        self.nodes[at][6:8] = self.branch(depth - 1)
        return at, False

    def attributes(self, kind):
        n, tensor = self.nodes, lambda v, t: numpy_helper.from_array(np.array(v, t))  # noqa: E731
        attrs = {
            "n_targets": self.targets, "tree_roots": self.roots, "nodes_featureids": [i[0] for i in n], "nodes_splits": tensor([i[1] for i in n], kind),
            "nodes_modes": tensor([i[2] for i in n], np.uint8), "nodes_missing_value_tracks_true": [i[3] for i in n],
            "nodes_truenodeids": [i[4] for i in n], "nodes_trueleafs": [int(i[5]) for i in n], "nodes_falsenodeids": [i[6] for i in n],
            "nodes_falseleafs": [int(i[7]) for i in n], "leaf_targetids": [i[0] for i in self.leaves], "leaf_weights": tensor([i[1] for i in self.leaves], kind),
        }  # fmt: skip
        if self.members:
            attrs["membership_values"] = tensor([v for i in n if i[2] == MEMBER for v in (*i[8], np.nan)], kind)
        return attrs

    def walk(self, row, root):
        at, leaf = root, False
        while not leaf:
            column, split, mode, missing, yes, yes_leaf, no, no_leaf, chosen = self.nodes[at]
            v = row[column]
            true = bool(missing) and np.isnan(v) or (v in chosen if mode == MEMBER else bool(COMPARE[mode](v, split)))  # NaN differs from all
            at, leaf = (yes, yes_leaf) if true else (no, no_leaf)
        return self.leaves[at]

    def answer(self, x, aggregate):
        out = np.zeros((len(x), self.targets))
        for i, row in enumerate(x):
            for target in range(self.targets):
                got = [w for t, w in (self.walk(row, r) for r in self.roots) if t == target]
                if got:
                    out[i, target] = {"SUM": sum, "AVERAGE": lambda g: sum(g) / len(self.roots), "MIN": min, "MAX": max}[aggregate](got)
        return out


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(12))
def test_ensemble(churon, tmp_path, seed, kind):
    rng = np.random.default_rng(300 + seed)
    e = Ensemble(rng, int(rng.integers(1, 12)), int(rng.integers(1, 3)), seed % 2 == 1)
    aggregate = ["AVERAGE", "SUM", "MIN", "MAX"][seed % 4]
    elem = T.FLOAT if kind == np.float32 else T.DOUBLE
    code = {"AVERAGE": 0, "SUM": 1, "MIN": 2, "MAX": 3}[aggregate]
    model = node_model("TreeEnsemble", [("x", elem)], [("y", elem)], version=5, opset=21, aggregate_function=code, **e.attributes(kind))
    x = rows(rng, kind)
    write(tmp_path, model, [x], [e.answer(x, aggregate).astype(kind)])
    wrong = verify(churon, tmp_path, 1e-5, 1e-5)
    assert wrong is None, wrong

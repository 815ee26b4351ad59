"""Operators that move, choose and make elements: every version of the schema, every type that it allows, against
numpy."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import onnx_suite  # noqa: E402
from onnx_suite import DTYPES, ELEM, FLOATS, schemas, types, values  # noqa: E402

I64 = np.int64


def run(suite, churon):
    faults = suite.run(churon)
    assert not faults, f"{len(faults)} faults\n" + "\n".join(faults[:40])


def test_shapes(churon, tmp_path):
    suite = onnx_suite.Suite(tmp_path)
    rng = np.random.default_rng(10)
    for s in schemas("Reshape"):
        v = s.since_version
        for kind in types(s):
            x = values(kind, (2, 3, 4), rng)
            for n, (shape, y) in enumerate([((4, 6), (4, 6)), ((-1, 2), (12, 2)), ((0, -1), (2, 12)), ((24,), (24,))]):
                if kind not in ("float", "string") and n != v % 4:
                    continue
                if v == 1:
                    suite.add(f"Reshape_1_{kind}_{n}", "Reshape", 1, [x], [x.reshape(y)], shape=shape)
                else:
                    suite.add(f"Reshape_{v}_{kind}_{n}", "Reshape", v, [x, I64(shape)], [x.reshape(y)])
    empty = np.zeros((0, 3), np.float32)
    suite.add("Reshape_allowzero", "Reshape", 14, [empty, I64([3, 0])], [empty.reshape(3, 0)], allowzero=1)
    suite.add("Reshape_scalar", "Reshape", 14, [np.float32([7]), np.zeros(0, I64)], [np.float32(7)])
    for s in schemas("Flatten"):
        v = s.since_version
        for kind in types(s):
            x = values(kind, (2, 3, 4), rng)
            for axis in (0, 1, 2, 3) + ((-1, -3) if v >= 11 else ()):
                at = axis % 3 if axis < 0 else axis
                y = x.reshape(int(np.prod(x.shape[:at])), -1)
                suite.add(f"Flatten_{v}_{kind}_{axis}", "Flatten", v, [x], [y], axis=axis)
    for s in schemas("Squeeze") + schemas("Unsqueeze"):
        v, op = s.since_version, s.name
        for kind in types(s):
            x = values(kind, (1, 3, 1, 2), rng)
            for axes in ((0,), (0, 2)) + (((-2,), (2, -4 if op == "Squeeze" else -1)) if v >= 11 else ()):
                y = np.squeeze(x, axes) if op == "Squeeze" else np.expand_dims(x, axes)
                name = f"{op}_{v}_{kind}_{axes}"
                if v < 13:
                    suite.add(name, op, v, [x], [y], axes=axes)
                else:
                    suite.add(name, op, v, [x, I64(axes)], [y], constant=(1,) if len(axes) == 1 else ())
            if op == "Squeeze":
                suite.add(f"{op}_{v}_{kind}_all", op, v, [x], [np.squeeze(x)])
    run(suite, churon)


def test_arrange(churon, tmp_path):
    suite = onnx_suite.Suite(tmp_path)
    rng = np.random.default_rng(11)
    for s in schemas("Transpose"):
        v = s.since_version
        for kind in types(s):
            x = values(kind, (2, 3, 17, 5), rng)
            for n, perm in enumerate((None, (0, 2, 1, 3), (3, 1, 2, 0), (0, 2, 3, 1), (1, 0, 3, 2), (0, 1, 2, 3))):
                if kind not in ("float", "int8", "string", "float16", "double", "complex128") and n != v % 6:
                    continue
                attributes = {} if perm is None else {"perm": perm}
                suite.add(f"Transpose_{v}_{kind}_{perm}", "Transpose", v, [x], [np.transpose(x, perm)], **attributes)
    x = values("float", (70, 45, 33), rng)
    for perm in ((2, 1, 0), (1, 0, 2), (0, 2, 1), (2, 0, 1), (1, 2, 0)):
        suite.add(f"Transpose_large_{perm}", "Transpose", 13, [x], [np.transpose(x, perm)], perm=perm)
    for s in schemas("Concat"):
        v = s.since_version
        for kind in types(s):
            x = [values(kind, (2, n, 3), rng) for n in (1, 0, 4)]
            suite.add(f"Concat_{v}_{kind}", "Concat", v, x, [np.concatenate(x, 1)], axis=1)
            one = values(kind, (2, 2), rng)
            suite.add(f"Concat_{v}_{kind}_last", "Concat", v, [one, one], [np.concatenate([one, one], 1)], axis=-1 if v > 4 else 1)
    suite.add("Concat_default", "Concat", 1, [x[0].astype(np.float32)] * 2, [np.concatenate([x[0].astype(np.float32)] * 2, 1)]) if x[0].dtype != object else None
    for s in schemas("Split"):
        v = s.since_version
        for kind in types(s):
            x = values(kind, (4, 7), rng)
            equal = np.split(x, 2, 0)
            uneven = np.split(x, [2, 2], 1)
            suite.add(f"Split_{v}_{kind}_equal", "Split", v, [x], equal, axis=0, **({"num_outputs": 2} if v >= 18 else {}))
            if v < 13:
                suite.add(f"Split_{v}_{kind}_sizes", "Split", v, [x], uneven, axis=1, split=[2, 0, 5])
            else:
                suite.add(f"Split_{v}_{kind}_sizes", "Split", v, [x, I64([2, 0, 5])], uneven, axis=-1)
    x = values("float", (7,), rng)
    suite.add("Split_rest", "Split", 18, [x], [x[:3], x[3:6], x[6:]], num_outputs=3)
    suite.add("Split_1_input", "Split", 1, [x, np.float32([3, 4])], [x[:3], x[3:]], axis=0, constant=(1,))
    for op in ("Expand", "Tile"):
        for s in schemas(op):
            v = s.since_version
            for kind in types(s):
                x = values(kind, (3, 1, 2), rng)
                if op == "Expand":
                    for shape in ((3, 4, 2), (2, 3, 1, 2), (1, 1), (5, 1)):
                        y = np.broadcast_to(x, np.broadcast_shapes(x.shape, shape))
                        suite.add(f"Expand_{v}_{kind}_{shape}", op, v, [x, I64(shape)], [y])
                elif v == 1:
                    suite.add(f"Tile_{v}_{kind}", op, v, [x, x.dtype.type(3), x.dtype.type(2)], [np.tile(x, (1, 1, 3))])
                else:
                    for repeats in ((2, 3, 2), (1, 1, 1), (1, 0, 1), (1, 5, 1)):
                        suite.add(f"Tile_{v}_{kind}_{repeats}", op, v, [x, I64(repeats)], [np.tile(x, repeats)])
    for s in schemas("DepthToSpace") + schemas("SpaceToDepth"):
        v, op = s.since_version, s.name
        for kind in types(s):
            for mode in ("DCR", "CRD"):
                has_mode = "mode" in s.attributes
                if mode == "CRD" and not has_mode:
                    continue
                b, deep = 2, values(kind, (2, 12, 3, 5), rng)
                split = (2, b, b, 3, 3, 5) if mode == "DCR" else (2, 3, b, b, 3, 5)
                order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
                wide = deep.reshape(split).transpose(order).reshape(2, 3, 6, 10)
                pair = (deep, wide) if op == "DepthToSpace" else (wide, deep)
                suite.add(f"{op}_{v}_{kind}_{mode}", op, v, [pair[0]], [pair[1]], blocksize=b, **({"mode": mode} if has_mode else {}))
    run(suite, churon)


SLICES = [([0], [2], [0], [1]), ([1, 0], [3, -1], [0, 1], [1, 1]), ([-2], [2**31 - 1], [2], [1]),
          ([-1], [-(2**31)], [1], [-1]), ([3], [0], [2], [-2]), ([0], [0], [0], [1]), ([5], [9], [1], [1]),
          ([-100], [100], [0], [2]), ([2**62], [-(2**62)], [2], [-1]), ([0, 0, 0], [2, 3, 4], [0, 1, 2], [1, 1, 3]),
          ([1], [2**63 - 1], [1], [2**62])]  # fmt: skip


def test_slice(churon, tmp_path):
    suite = onnx_suite.Suite(tmp_path)
    rng = np.random.default_rng(12)
    for s in schemas("Slice"):
        v = s.since_version
        for kind in types(s):
            x = values(kind, (4, 5, 6), rng)
            for n, (starts, ends, axes, steps) in enumerate(SLICES):
                if kind not in ("float", "string", "int64") and n % 4 != v % 4:
                    continue
                index = [slice(None)] * 3
                for b, e, a, t in zip(starts, ends, axes, steps):
                    index[a] = slice(b, None if e <= -(2**31) and t < 0 else e, t)
                name = f"Slice_{v}_{kind}_{n}"
                y = x[tuple(index)]
                if v == 1:
                    if steps == [1] * len(steps):
                        suite.add(name, "Slice", 1, [x], [y], starts=starts, ends=ends, axes=axes)
                    continue
                small = max(map(abs, starts + ends)) < 2**31
                index_type = np.int32 if n % 3 == 1 and small else np.int64
                lists = [index_type(q) for q in (starts, ends, axes, steps)]
                if v >= 11 and n % 2:
                    lists[2] = index_type([a - 3 for a in axes])
                suite.add(name, "Slice", v, [x, *lists], [y], constant=(1, 2, 3, 4) if n % 2 else ())
    x = values("float", (4, 5), rng)
    suite.add("Slice_default", "Slice", 10, [x, I64([1, 1]), I64([4, 3])], [x[1:4, 1:3]])
    run(suite, churon)


def test_gather_and_scatter(churon, tmp_path):
    suite = onnx_suite.Suite(tmp_path)
    rng = np.random.default_rng(13)
    for s in schemas("Gather"):
        v = s.since_version
        for kind in types(s):
            x = values(kind, (3, 4, 5), rng)
            for axis in (0, 1, 2):
                for index in (np.int32([[0, 2], [1, 1]]), I64(2), np.zeros((0,), I64), *([I64([-1, -3])] if v >= 11 else [])):
                    name = f"Gather_{v}_{kind}_{axis}_{index.shape}_{index.ravel()[:1]}"
                    suite.add(name, "Gather", v, [x, index], [np.take(x, index, axis)], axis=axis)
    for s in schemas("GatherElements"):
        for kind in types(s):
            x = values(kind, (3, 4, 5), rng)
            for axis in (0, 1, -1):
                shape = [2, 3, 4]
                index = rng.integers(-3, 3, shape)
                full = x[tuple(slice(0, n) if d != axis % 3 else slice(None) for d, n in enumerate(shape))]
                y = np.take_along_axis(full, index, axis)
                suite.add(f"GatherElements_{s.since_version}_{kind}_{axis}", s.name, s.since_version, [x, index], [y], axis=axis)
    for s in schemas("GatherND"):
        for kind in types(s):
            x = values(kind, (2, 3, 4, 5), rng)
            index = np.stack([rng.integers(-2, 2, (6,)), rng.integers(-3, 3, (6,))], -1)
            suite.add(f"GatherND_{s.since_version}_{kind}", s.name, s.since_version, [x, index], [x[tuple(index.T)]])
            if s.since_version >= 12:
                index = rng.integers(-3, 3, (2, 4, 1))
                y = np.stack([x[b][index[b, :, 0]] for b in range(2)])
                suite.add(f"GatherND_{s.since_version}_{kind}_b", s.name, s.since_version, [x, index], [y], batch_dims=1)
    for s in schemas("Scatter") + schemas("ScatterElements"):
        for kind in types(s):
            x, u = values(kind, (3, 4, 5), rng), values(kind, (2, 4, 3), rng)
            index = np.argsort(rng.random((2, 5, 5)), axis=1)[:, :4, :3] % 4
            index = np.stack([np.stack([rng.permutation(4) for _ in range(3)], -1) for _ in range(2)]) - 4 * (s.since_version > 9)
            y = x.copy()
            i, j, k = np.meshgrid(range(2), range(4), range(3), indexing="ij")
            y[i, index, k] = u
            suite.add(f"{s.name}_{s.since_version}_{kind}", s.name, s.since_version, [x, index, u], [y], axis=1)
            reductions = [] if "reduction" not in s.attributes else ["add", "mul"] + (["max", "min"] if s.since_version >= 18 else [])
            for reduction in reductions if kind not in ("string", "bool") else []:
                if kind.startswith("complex") and reduction in ("max", "min"):
                    continue
                f = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
                y = x.copy()
                twice = index % 2
                for at in np.ndindex(2, 4, 3):
                    y[at[0], twice[at], at[2]] = f(y[at[0], twice[at], at[2]], u[at])
                suite.add(f"{s.name}_{s.since_version}_{kind}_{reduction}", s.name, s.since_version, [x, twice, u], [y],
                          axis=1, reduction=reduction)  # fmt: skip
    for s in schemas("ScatterND"):
        for kind in types(s):
            x, u = values(kind, (4, 3, 2), rng), values(kind, (3, 2), rng)
            index = I64([[0, 1], [-1, 2], [2, 0]])
            y = x.copy()
            y[tuple(index.T)] = u
            suite.add(f"ScatterND_{s.since_version}_{kind}", s.name, s.since_version, [x, index, u], [y])
            if s.since_version >= 16 and kind in ("float", "bfloat16", "int8", "complex64"):
                twice = I64([[1, 1], [1, 1], [-3, -2]])
                y = x.copy()
                for n in range(3):
                    y[1, 1] = y[1, 1] + u[n]
                suite.add(f"ScatterND_{s.since_version}_{kind}_add", s.name, s.since_version, [x, twice, u], [y], reduction="add")
    for kind in types(schemas("TensorScatter")[-1]):
        x, u = values(kind, (2, 3, 6, 2), rng), values(kind, (2, 3, 2, 2), rng)
        for mode, at in (("linear", (4, 0)), ("circular", (5, 13))):
            y = x.copy()
            for b in range(2):
                for i in range(2):
                    y[b, :, (at[b] + i) % 6] = u[b, :, i]
            suite.add(f"TensorScatter_{kind}_{mode}", "TensorScatter", 24, [x, u, I64(at)], [y], mode=mode)
    run(suite, churon)


def test_pad(churon, tmp_path):
    suite = onnx_suite.Suite(tmp_path)
    rng = np.random.default_rng(14)
    for s in schemas("Pad"):
        v = s.since_version
        for kind in types(s):
            x = values(kind, (3, 4, 5), rng)
            for mode in ("constant", "reflect", "edge") + (("wrap",) if v >= 19 else ()):
                for n, pads in enumerate([(0, 1, 2, 0, 2, 1), (0, 0, 0, 0, 0, 0), (1, 0, 7, 0, 9, 0)]):
                    width = list(zip(pads[:3], pads[3:]))
                    fill = values(kind, (), rng)[()] if v >= 11 else np.float32(1.5)
                    more = {"constant_values": np.asarray(fill).astype(x.dtype) if x.dtype != object else fill} if mode == "constant" else {}
                    y = np.pad(x, width, mode=mode, **more)
                    name = f"Pad_{v}_{kind}_{mode}_{n}"
                    if v < 11:
                        suite.add(name, "Pad", v, [x], [y], mode=mode, value=1.5, **{"paddings" if v == 1 else "pads": pads})
                    else:
                        value = np.array(fill, dtype=x.dtype) if mode == "constant" else None
                        suite.add(name, "Pad", v, [x, I64(pads), value] if value is not None else [x, I64(pads)], [y], mode=mode)
    x = values("float", (3, 4, 5), rng)
    suite.add("Pad_cut", "Pad", 13, [x, I64([-1, 1, 0, 0, 0, -2])], [np.pad(x[1:, :, :3], ((0, 0), (1, 0), (0, 0)))])
    y = np.pad(x, ((0, 0), (0, 0), (1, 2)), mode="edge")
    suite.add("Pad_axes", "Pad", 18, [x, I64([1, 2]), None, np.int32([-1])], [y], mode="edge")
    for kind in types(schemas("CenterCropPad")[-1]):
        x = values(kind, (4, 7, 3), rng)
        y = np.zeros((5, 4, 3), x.dtype) if x.dtype != object else np.full((5, 4, 3), "", dtype=object)
        y[0:4] = x[:, 1:5]
        suite.add(f"CenterCropPad_{kind}", "CenterCropPad", 18, [x, np.int32([5, 4])], [y], axes=[0, 1])
    run(suite, churon)


def first_order(x):
    """np.unique in the order of first appearance."""
    y, index, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(index)
    back = np.argsort(order)
    return y[order], index[order], back[inverse.ravel()], counts[order]


def test_select(churon, tmp_path):
    suite = onnx_suite.Suite(tmp_path)
    rng = np.random.default_rng(15)
    for s in schemas("Compress"):
        for kind in types(s):
            x, c = values(kind, (3, 4, 2), rng), np.array([True, False, True])
            suite.add(f"Compress_{s.since_version}_{kind}", s.name, s.since_version, [x, c], [np.compress(c, x, 1)], axis=1)
            suite.add(f"Compress_{s.since_version}_{kind}_flat", s.name, s.since_version, [x, c], [np.compress(c, x)])
    for s in schemas("NonZero"):
        for kind in types(s):
            x = values(kind, (3, 4, 5), rng)
            nonzero = x != "" if x.dtype == object else x != np.zeros((), x.dtype)
            suite.add(f"NonZero_{s.since_version}_{kind}", s.name, s.since_version, [x], [np.array(np.nonzero(nonzero), dtype=I64)])
    suite.add("NonZero_scalar", "NonZero", 13, [np.float32(3)], [np.zeros((0, 1), I64)])
    for s in schemas("OneHot"):
        v = s.since_version
        for kind in types(s, "T3"):
            pair = values(kind, (2,), rng)
            index = np.int64([[0, -1, 4], [2, 5, -5]])
            y = np.empty((2, 5, 3), pair.dtype)
            y[...] = pair[0]
            for at in np.ndindex(2, 3):
                if -5 <= index[at] < 5:
                    y[at[0], index[at] % 5, at[1]] = pair[1]
            suite.add(f"OneHot_{v}_{kind}", "OneHot", v, [index, I64(5), pair], [y], axis=1)
        for kind in types(s, "T1"):
            index = np.array([0, 2, 1]).astype(DTYPES[kind])
            suite.add(f"OneHot_{v}_index_{kind}", "OneHot", v, [index, index.dtype.type(3), np.float32([0, 1])],
                      [np.eye(3, dtype=np.float32)[[0, 2, 1]]])  # fmt: skip
    for s in schemas("Unique"):
        v = s.since_version
        for kind in types(s):
            x = values(kind, (3, 7), rng)
            if kind not in ("bfloat16",):
                y, index, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
                suite.add(f"Unique_{v}_{kind}", "Unique", v, [x], [y, index.astype(I64), inverse.ravel().astype(I64), counts.astype(I64)])
                y, index, inverse, counts = first_order(x)
                suite.add(f"Unique_{v}_{kind}_unsorted", "Unique", v, [x], [y, index.astype(I64), inverse.astype(I64), counts.astype(I64)], sorted=0)
    x = rng.integers(0, 2, (3, 8, 2)).astype(np.int32)
    y, index, inverse, counts = np.unique(x, axis=1, return_index=True, return_inverse=True, return_counts=True)
    suite.add("Unique_axis", "Unique", 11, [x], [y, index.astype(I64), inverse.ravel().astype(I64), counts.astype(I64)], axis=1)
    run(suite, churon)


def test_order(churon, tmp_path):
    suite = onnx_suite.Suite(tmp_path)
    rng = np.random.default_rng(16)
    for op, f in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
        for s in schemas(op):
            v = s.since_version
            for kind in types(s):
                x = values(kind, (3, 40, 5), rng)
                for axis in (0, 1, 2):
                    y = np.expand_dims(f(x.astype(np.float64) if x.dtype.kind not in "iu" else x, axis), axis).astype(I64)
                    suite.add(f"{op}_{v}_{kind}_{axis}", op, v, [x], [y], axis=axis)
                    if v >= 12:
                        flip = np.flip(x, axis)
                        last = x.shape[axis] - 1 - f(flip.astype(np.float64) if x.dtype.kind not in "iu" else flip, axis)
                        suite.add(f"{op}_{v}_{kind}_{axis}_last", op, v, [x], [last.astype(I64)], axis=axis, keepdims=0, select_last_index=1)
    x = np.float32([1, np.nan, 3, np.nan])
    suite.add("ArgMax_nan", "ArgMax", 13, [x], [I64([1])])
    suite.add("ArgMin_nan", "ArgMin", 13, [x], [I64([1])])
    for s in schemas("TopK"):
        v = s.since_version
        for kind in types(s):
            x = values(kind, (4, 300, 3), rng)
            wide = x.astype(np.float64) if x.dtype.kind not in "iu" else x.astype(object)
            for k in (1, 7, 300):
                for largest in (1, 0) if v >= 11 else (1,):
                    order = np.argsort(-wide if largest else wide, axis=1, kind="stable")[:, :k].astype(I64)
                    y = np.take_along_axis(x, order, 1)
                    attributes = {"axis": 1, **({"largest": largest} if v >= 11 else {}), **({"k": k} if v == 1 else {})}
                    suite.add(f"TopK_{v}_{kind}_{k}_{largest}", "TopK", v, [x] if v == 1 else [x, I64([k])], [y, order], **attributes)
    for s in schemas("Hardmax"):
        v = s.since_version
        for kind in types(s):
            x = values(kind, (3, 4, 5), rng)
            for axis in (0, 1, 2):
                rows = x.reshape(int(np.prod(x.shape[:axis])), -1) if v < 13 else np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
                y = np.zeros_like(rows)
                y[np.arange(len(rows)), np.argmax(rows.astype(np.float64), 1)] = 1
                if v >= 13:
                    moved = np.moveaxis(x, axis, -1).shape
                    y = np.moveaxis(y.reshape(moved), -1, axis)
                suite.add(f"Hardmax_{v}_{kind}_{axis}", "Hardmax", v, [x], [y.reshape(x.shape)], axis=axis)
    for op, f in (("CumSum", np.cumsum), ("CumProd", np.cumprod)):
        for s in schemas(op):
            for kind in types(s):
                if kind in ("float16", "bfloat16"):
                    x = rng.integers(1, 3, (3, 5, 70)).astype(DTYPES[kind])
                else:
                    x = values(kind, (3, 5, 70), rng)
                if op == "CumProd":
                    x = np.where(rng.random(x.shape) < 0.9, np.ones((), x.dtype), x)
                for axis in (0, 1) + ((-1,) if kind in ("int32", "int64", "uint32", "uint64") else ()):
                    for exclusive in (0, 1):
                        for reverse in (0, 1):
                            y = np.flip(x, axis) if reverse else x
                            wide = y.astype(np.float64) if x.dtype.kind not in "iu" else y
                            y = f(wide, axis=axis, dtype=None if x.dtype.kind not in "iu" else x.dtype)
                            if exclusive:
                                y = np.roll(y, 1, axis)
                                index = [slice(None)] * 3
                                index[axis] = slice(0, 1)
                                y[tuple(index)] = op == "CumProd"
                            y = np.flip(y, axis) if reverse else y
                            suite.add(f"{op}_{s.since_version}_{kind}_{axis}_{exclusive}{reverse}", op, s.since_version,
                                      [x, np.int32(axis)], [y.astype(x.dtype)], exclusive=exclusive, reverse=reverse)  # fmt: skip
    run(suite, churon)


def test_generate(churon, tmp_path):
    suite = onnx_suite.Suite(tmp_path)
    rng = np.random.default_rng(17)
    for s in schemas("Range"):
        for kind in types(s):
            for n, (a, b, d) in enumerate([(0, 10, 3), (5, -5, -2), (3, 3, 1), (4, 1, 2)]):
                t = DTYPES[kind]
                y = np.arange(a, b, d).astype(t)
                suite.add(f"Range_{s.since_version}_{kind}_{n}", "Range", s.since_version,
                          [np.array(q).astype(t) for q in (a, b, d)], [y], constant=(0, 1, 2) if n == 1 else ())  # fmt: skip
    for s in schemas("EyeLike"):
        for kind in types(s, "T1"):
            x = values(kind, (3, 4), rng)
            for k in (0, 1, -2, 9):
                suite.add(f"EyeLike_{s.since_version}_{kind}_{k}", "EyeLike", s.since_version, [x], [np.eye(3, 4, k).astype(x.dtype)], k=k)
            suite.add(f"EyeLike_{s.since_version}_{kind}_d", "EyeLike", s.since_version, [x], [np.eye(3, 4).astype(np.float64)], dtype=ELEM["double"])
    for kind in types(schemas("Trilu")[-1]):
        x = values(kind, (2, 4, 5), rng)
        if x.dtype == object:
            continue
        for k in (0, 2, -1, 9, -9):
            upper = np.array([[j - i >= k for j in range(5)] for i in range(4)])
            lower = np.array([[j - i <= k for j in range(5)] for i in range(4)])
            suite.add(f"Trilu_{kind}_u{k}", "Trilu", 14, [x, I64(k)], [np.where(upper, x, np.zeros((), x.dtype))])
            suite.add(f"Trilu_{kind}_l{k}", "Trilu", 14, [x, I64(k)], [np.where(lower, x, np.zeros((), x.dtype))], upper=0)
    for s in schemas("ReverseSequence"):
        for kind in types(s):
            x = values(kind, (4, 3, 2), rng)
            lens = I64([4, 1, 3])
            y = x.copy()
            for b, n in enumerate(lens):
                y[:n, b] = x[:n, b][::-1]
            suite.add(f"ReverseSequence_{s.since_version}_{kind}", s.name, s.since_version, [x, lens], [y])
    x = values("float", (3, 4), rng)
    for v, kind in ((1, np.float32), (6, np.float32), (7, np.float32), (10, np.bool_), (12, np.bool_), (22, np.bool_)):
        test = {"is_test": 1} if v < 7 else {}
        suite.add(f"Dropout_{v}", "Dropout", v, [x], [x, np.ones((3, 4), kind)], **test)
    suite.add("Dropout_1_ratio", "Dropout", 1, [x], [x], ratio=0.0)
    suite.add("Dropout_ratio_0", "Dropout", 13, [x, np.float32(0), np.array(True)], [x])
    run(suite, churon)


def round_e8m0(x, mode):
    """Powers of two, saturated."""
    out = []
    for v in x.astype(np.float64).ravel():
        if v != v or v < 0:
            out.append(np.nan)
            continue
        v = min(max(v, 2.0**-127), 2.0**127)
        low = 2.0 ** np.floor(np.log2(v))
        up = low != v and (mode == "up" or (mode == "nearest" and v >= 1.5 * low))
        out.append(min(low * 2 if up else low, 2.0**127))
    return np.array(out).astype(DTYPES["float8e8m0"]).reshape(x.shape)


def test_cast(churon, tmp_path):
    suite = onnx_suite.Suite(tmp_path)
    rng = np.random.default_rng(18)
    for op in ("Cast", "CastLike"):
        newest = schemas(op)[-1].since_version
        for s in schemas(op):
            v = s.since_version
            if v == 1 and op == "Cast":
                for name, kind in (("FLOAT", "float"), ("INT64", "int64"), ("BOOL", "bool"), ("DOUBLE", "double")):
                    x = values("float16", (9,), rng)
                    suite.add(f"Cast_1_{name}", "Cast", 1, [x], [x.astype(DTYPES[kind])], to=name)
                continue
            kinds = types(s, "T1")
            for a in kinds:
                for b in types(s, "T2"):
                    if v < newest and "float" not in (a, b):
                        continue
                    if "string" in (a, b) or a == "float8e8m0" or b == "float8e8m0" or not ELEM[a] or not ELEM[b]:
                        continue
                    x = values(a, (37,), rng)
                    low, high = (0 if b.startswith("u") or b == "bool" else -2), (1 if b.endswith("2") or b == "bool" else 7)
                    wide = x.astype(np.float64)
                    if b != "bool" and ("4" in b[-1:] or b.endswith("2") or b.startswith("u") or b == "float4e2m1"):
                        x = np.clip(wide, low, high).astype(x.dtype)  # what is out of range is not defined
                        wide = x.astype(np.float64)
                    if b == "bool":
                        y = wide.astype(bool)
                    elif "int" in b:
                        y = np.trunc(wide).astype(np.int64).astype(DTYPES[b])
                    else:
                        y = wide.astype(DTYPES[b])
                    name = f"{op}_{v}_{a}_{b}"
                    if op == "Cast":
                        suite.add(name, op, v, [x], [y], to=ELEM[b])
                    else:
                        suite.add(name, op, v, [x, np.zeros(1, DTYPES[b])], [y])
    x = np.float32([0, 1, 1.2, 1.5, 1.75, 3e38, 1e-45, np.inf, np.nan, 0.3, 6])
    for mode in ("up", "down", "nearest"):
        finite = x.copy()
        suite.add(f"e8m0_{mode}", "Cast", 24, [x], [round_e8m0(finite, mode)], to=ELEM["float8e8m0"], round_mode=mode)
    big = I64([2**53 + 1, 2**60 + 2**35, -(2**53) - 1, 2**24 + 1, 2**62 + 2**38 + 1])
    suite.add("int64_float", "Cast", 13, [big], [big.astype(np.float32)], to=ELEM["float"])
    suite.add("int64_double", "Cast", 13, [big], [big.astype(np.float64)], to=ELEM["double"])
    suite.add("uint64_float", "Cast", 13, [np.uint64([2**64 - 1, 2**63 + 2**39 + 1])], [np.uint64([2**64 - 1, 2**63 + 2**39 + 1]).astype(np.float32)], to=ELEM["float"])
    suite.add("narrow", "Cast", 13, [np.int16([200, -200, 256])], [np.int8([-56, 56, 0])], to=ELEM["int8"])
    suite.add("to_bool", "Cast", 13, [np.float32([0, -0.0, 0.1, np.nan, np.inf])], [np.array([False, False, True, True, True])], to=ELEM["bool"])
    words = np.array(["1.5", "-2e3", "INF", "-inf", "NaN", " 7 ", "+0.1"], dtype=object)
    numbers = np.float32([1.5, -2000, np.inf, -np.inf, np.nan, 7, 0.1])
    suite.add("text_float", "Cast", 13, [words], [numbers], to=ELEM["float"])
    suite.add("text_double", "Cast", 9, [words[:2]], [np.float64([1.5, -2000])], to=ELEM["double"])
    suite.add("text_int64", "Cast", 13, [np.array(["9223372036854775807", "-12", "3.9"], dtype=object)], [I64([2**63 - 1, -12, 3])], to=ELEM["int64"])
    suite.add("text_uint64", "Cast", 13, [np.array(["18446744073709551615"], dtype=object)], [np.uint64([2**64 - 1])], to=ELEM["uint64"])
    suite.add("float_text", "Cast", 13, [np.float32([0.1, 1, -2.5, 314.15927, np.inf, np.nan])],
              [np.array(["0.1", "1", "-2.5", "314.15927", "INF", "NaN"], dtype=object)], to=ELEM["string"])  # fmt: skip
    suite.add("double_text", "Cast", 13, [np.float64([0.1, 1 / 3])], [np.array(["0.1", "0.3333333333333333"], dtype=object)], to=ELEM["string"])
    suite.add("int_text", "Cast", 13, [I64([2**63 - 1, -5])], [np.array(["9223372036854775807", "-5"], dtype=object)], to=ELEM["string"])
    for s in schemas("BitCast"):
        for a in types(s, "T1"):
            for b in types(s, "T2"):
                # signed to unsigned of the same width, and back; floats to integers
                if not ELEM[a] or not ELEM[b] or DTYPES[a].itemsize != DTYPES[b].itemsize or a[-1] != b[-1] or "bool" in (a, b):
                    continue
                if {a[:3], b[:3]} - {"int", "uin"}:
                    continue
                x = values(a, (16,), rng)
                suite.add(f"BitCast_{a}_{b}", "BitCast", 26, [x], [x.astype(np.int64).astype(DTYPES[b])], to=ELEM[b])
    run(suite, churon)


def test_refused(churon, tmp_path):
    """Indexes and sizes that do not fit: one line that names the node, what was expected and what came."""
    suite = onnx_suite.Suite(tmp_path)
    x, none = np.float32([[1, 2, 3], [4, 5, 6]]), np.float32([0])
    expected = {}

    def refuse(name, text, op, opset, inputs, **attributes):
        expected[name] = text
        suite.add(name, op, opset, inputs, [I64([0]) if op == "Range" and inputs[0].dtype == I64 else none], **attributes)

    refuse("gather", "expected -2 to 1, got 2", "Gather", 13, [x, I64([0, 2])])
    refuse("gather_negative", "expected -2 to 1, got -3", "Gather", 13, [x, I64([-3])])
    refuse("gather_elements", "element 1: expected -3 to 2, got 3", "GatherElements", 13, [x, I64([[0, 3]])], axis=1)
    refuse("gather_nd", "element 1: expected -3 to 2, got 9", "GatherND", 13, [x, I64([[0, 9]])])
    refuse("scatter", "element 0: expected -2 to 1, got 5", "ScatterElements", 18, [x, I64([[5]]), np.float32([[1]])])
    refuse("scatter_nd", "element 0: expected -2 to 1, got -7", "ScatterND", 18, [x, I64([[-7]]), np.float32([[1, 2, 3]])])
    refuse("scatter_shape", "a dimension of updates", "ScatterND", 18, [x, I64([[0]]), np.float32([[1, 2]])])
    refuse("reshape", "expected a product of 6", "Reshape", 14, [x, I64([4, 2])])
    refuse("reshape_rest", "expected a product that divides 6", "Reshape", 14, [x, I64([4, -1])])
    refuse("reshape_two", "expected at least 0, or -1 once, got -1", "Reshape", 14, [x, I64([-1, -1])])
    refuse("squeeze", "a squeezed dimension and 1", "Squeeze", 13, [x, I64([0])])
    refuse("unsqueeze", "got axis 1 twice", "Unsqueeze", 13, [x, I64([1, 1])])
    refuse("concat", "a dimension of two concatenated inputs", "Concat", 13, [x, x[:1, :2]], axis=0)
    refuse("split", "the sum of split and the dimension", "Split", 13, [x, I64([1])], axis=1)
    refuse("step", "steps[0]: expected not 0", "Slice", 13, [x, I64([0]), I64([1]), I64([0]), I64([0])])
    refuse("expand", "expected 1 or 3 to broadcast", "Expand", 13, [x, I64([2])])
    refuse("expand_large", "expected", "Expand", 13, [none, I64([2**40, 2**20])])
    refuse("tile", "repeats: expected 2 numbers", "Tile", 13, [x, I64([1])])
    refuse("tile_large", "expected", "Tile", 13, [x, I64([2**40, 2**40])])
    refuse("pad", "pads: expected 4 numbers", "Pad", 13, [x, I64([1, 1])])
    refuse("pad_cut", "expected axis 0 of 2 to keep at least 0, got -1", "Pad", 13, [x, I64([-3, 0, 0, 0])])
    refuse("pad_huge", "expected -1099511627776 to 1099511627776", "Pad", 13, [x, I64([2**62, 0, 0, 0])])
    refuse("top_k", "K: expected at most 3 (the axis), got 4", "TopK", 11, [x, I64([4])])
    refuse("one_hot", "depth: expected at least 0, got -1", "OneHot", 11, [I64([0]), I64(-1), np.float32([0, 1])])
    refuse("range", "delta: expected not 0", "Range", 11, [I64(0), I64(5), I64(0)])
    refuse("range_endless", "expected", "Range", 11, [np.float32(0), np.float32(np.inf), np.float32(1)])
    refuse("range_long", "expected", "Range", 11, [I64(0), I64(2**62), I64(1)])
    refuse("compress", "condition: expected at most 2 elements, got 3", "Compress", 11, [x, np.array([True] * 3)], axis=0)
    refuse("reverse", "element 0: expected 0 to 2, got 3", "ReverseSequence", 10, [x, I64([3, 1, 1])])
    refuse("tensor_scatter", "element 0: expected 0 to 1, got 2", "TensorScatter", 24, [x.reshape(1, 3, 2), x.reshape(1, 3, 2)[:, :2], I64([2])])
    refuse("text", 'element 0: expected a number, got "one"', "Cast", 13, [np.array(["one"], dtype=object)], to=ELEM["float"])
    refuse("bits", "to: expected a type of 32 bits", "BitCast", 26, [x], to=ELEM["int16"])
    refuse("training", "training_mode: expected false", "Dropout", 13, [x, np.float32(0.5), np.array(True)])
    refuse("training_1", "is_test: expected 1", "Dropout", 1, [x])
    refuse("perm", "perm: expected 2 axes", "Transpose", 13, [x], perm=[0, 2, 1])
    refuse("cumsum", "axis: expected -2 to 1, got 2", "CumSum", 14, [x, I64(2)])
    refuse("block", "expected dimension 1 to be a multiple of 4, got 3", "DepthToSpace", 13, [np.zeros((1, 3, 2, 2), np.float32)], blocksize=2)
    faults = dict(line.split(": ", 1) for line in suite.run(churon))
    assert set(faults) == set(expected)
    wrong = [f"{n}: {faults[n]}" for n, text in expected.items() if text not in faults[n] or not faults[n].startswith(("node '", "y0: "))]
    assert not wrong, "\n".join(wrong)


def test_random(churon, tmp_path):
    """Seeded numbers have the distribution that is asked for: means of many, computed by the same graph."""
    suite = onnx_suite.Suite(tmp_path)
    from onnx import helper

    def add(name, node, mean, square, opset=22, inputs=()):
        nodes = [node, helper.make_node("Cast", ["r"], ["d"], to=ELEM["double"]), helper.make_node("Mul", ["d", "d"], ["q"]),
                 helper.make_node("ReduceMean", ["d"], ["m"], keepdims=0), helper.make_node("ReduceMean", ["q"], ["s"], keepdims=0)]  # fmt: skip
        graph = helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(n, ELEM["double"], []) for n in "ms"],
                                  [onnx_suite.proto(a, f"x{i}") for i, a in enumerate(inputs)])  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        model.ir_version = 10
        data = tmp_path / name / "test_data_set_0"
        data.mkdir(parents=True)
        (tmp_path / name / "model.onnx").write_bytes(model.SerializeToString())
        for k, v in enumerate((mean, square)):
            (data / f"output_{k}.pb").write_bytes(onnx_suite.proto(np.float64(v), "m").SerializeToString())
        suite.names.append(name)

    n = [400, 1000]
    for kind in FLOATS:
        if kind != "bfloat16":
            add(f"normal_{kind}", helper.make_node("RandomNormal", [], ["r"], shape=n, dtype=ELEM[kind], mean=2.0, scale=0.5, seed=3.0), 2, 4.25)
        add(f"uniform_{kind}", helper.make_node("RandomUniform", [], ["r"], shape=n, dtype=ELEM[kind], low=1.0, high=3.0, seed=7.0), 2, 13 / 3)
    like = np.zeros(n, np.float32)
    add("normal_like", helper.make_node("RandomNormalLike", ["x0"], ["r"], seed=1.0), 0, 1, inputs=[like])
    add("uniform_like", helper.make_node("RandomUniformLike", ["x0"], ["r"]), 0.5, 1 / 3, inputs=[like])
    p = np.full(n, 0.25, np.float32)
    add("bernoulli", helper.make_node("Bernoulli", ["x0"], ["r"], seed=1.0, dtype=ELEM["int32"]), 0.25, 0.25, inputs=[p])
    rows = np.log(np.float32([[0.1, 0.2, 0.7]]))
    add("multinomial", helper.make_node("Multinomial", ["x0"], ["r"], sample_size=400000, seed=5.0), 1.6, 3.0, inputs=[rows])
    faults = suite.run(churon, "--rtol", "0.01", "--atol", "0.01")
    assert not faults, "\n".join(faults)

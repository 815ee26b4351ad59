"""com.microsoft against ONNX Runtime: forms of attention drawn at random, caches of codes, quantized tables, and the
operators that optimizers, quantizers and old exporters leave in files. Seeds are fixed; what ONNX Runtime itself
refuses is counted, so that the comparison cannot become empty."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ml_dtypes = pytest.importorskip("ml_dtypes")
pytest.importorskip("onnxruntime", reason="skip: onnxruntime is not installed")

from ort_case import Cases  # noqa: E402


class Draw(Cases):
    def pick(self, *items):
        return items[self.rng.integers(len(items))]

    def chance(self, p):
        return self.rng.random() < p

    def mask(self, *shape):
        return (self.rng.random(shape) < 0.7).astype(np.int32)


def multi_head(c, i):
    rng, f = c.rng, c.f32
    batch, length, heads, size = int(rng.integers(1, 4)), int(rng.integers(1, 6)), c.pick(1, 2, 3), c.pick(4, 8, 10)
    keys, hidden, before = c.pick(length, int(rng.integers(1, 8))), heads * size, 0
    v_size = c.pick(size, size, 6)
    key, value, past = f(batch, keys, hidden), f(batch, keys, heads * v_size), [None, None]
    if c.chance(0.2):
        v_size = size
        key, value = f(batch, heads, keys, size), f(batch, heads, keys, size)
    elif c.chance(0.4):
        before, v_size = int(rng.integers(0, 5)), size
        value, past = f(batch, keys, hidden), [f(batch, heads, before, size), f(batch, heads, before, size)]
    total = before + keys
    mask = c.pick(None, None, rng.integers(1, keys + 1, batch).astype(np.int32), c.mask(batch, total), c.mask(batch, length, total))
    bias = f(c.pick(1, batch), c.pick(1, heads), length, total) if c.chance(0.3) else None
    attrs = {"num_heads": heads}
    if keys == length and c.chance(0.4):
        attrs["unidirectional"] = 1
    if c.chance(0.3):
        attrs["scale"] = 0.3
    if c.chance(0.2):
        attrs["mask_filter_value"] = -5.0
    projected = f(2 * hidden + heads * v_size) if c.chance(0.4) else None
    # Without an output for the new cache ONNX Runtime reads memory that nobody wrote.
    outputs = c.pick("x", "xxx", "xxxf") if past[0] is None else c.pick("xxx", "xxxf")
    c.ms(f"mha_{i}", "MultiHeadAttention", [f(batch, length, hidden), key, value, projected, mask, bias, *past], outputs, **attrs)


def attention(c, i):
    rng, f = c.rng, c.f32
    batch, length, heads, size = int(rng.integers(1, 4)), int(rng.integers(1, 6)), c.pick(1, 2, 3), c.pick(4, 8)
    before = int(rng.integers(0, 4)) if c.chance(0.4) else None
    v_size = c.pick(size, size, 6) if before is None else size
    total = length + (before or 0)
    ends = rng.integers(1, total + 1, batch).astype(np.int32)
    starts = np.array([rng.integers(0, e) for e in ends], np.int32)
    mask = c.pick(None, ends, np.concatenate([ends, starts]), c.mask(batch, total), c.mask(batch, length, total))
    attrs = {"num_heads": heads}
    outputs = "x"
    if v_size != size:
        attrs["qkv_hidden_sizes"] = [heads * size, heads * size, heads * v_size]
    elif before is not None or c.chance(0.5):
        outputs = "xx"
    if c.chance(0.35):
        attrs["unidirectional"] = 1
    if c.chance(0.2):
        attrs["scale"] = 0.3
    if c.chance(0.2):
        attrs["mask_filter_value"] = -5.0
    past = None if before is None else f(2, batch, heads, before, size)
    bias = f(c.pick(1, batch), c.pick(1, heads), length, total) if past is None and c.chance(0.25) else None
    width = heads * (2 * size + v_size)
    inputs = [f(batch, length, 12), f(12, width), f(width) if c.chance(0.8) else None, mask, past, bias]
    c.ms(f"attention_{i}", "Attention", inputs, outputs, constant=[1], **attrs)


def grouped(c, i):
    rng, f = c.rng, c.f32
    batch, length, kv, size = int(rng.integers(1, 4)), int(rng.integers(1, 6)), c.pick(1, 2, 3), c.pick(16, 32)
    heads, step = kv * c.pick(1, 2, 4), c.chance(0.6)
    before = int(rng.integers(1, 9)) if step else 0
    if step and length > 1:
        batch = 1
    if c.chance(0.3):
        qkv = [f(batch, length, (heads + 2 * kv) * size), None, None]
    else:
        qkv = [f(batch, length, heads * size), f(batch, length, kv * size), f(batch, length, kv * size)]
    # Sequences of their own lengths only where all rows of queries exist: what others give is not said.
    ends = np.full(batch, before + length - 1, np.int32)
    if step and length == 1:
        ends = rng.integers(0, before + 1, batch).astype(np.int32)
    total = int(ends.max()) + 1
    attrs = {"num_heads": heads, "kv_num_heads": kv}
    past, scales, outputs = [None, None], [None, None], "xxx"
    if step:
        room = before + c.pick(0, length + 3)
        past = [f(batch, kv, room, size), f(batch, kv, room, size)]
        if c.chance(0.5):
            bits, kind = c.pick(4, 8), c.pick("PER_TENSOR", "PER_CHANNEL")
            attrs.update(k_quant_type=kind, v_quant_type=kind, kv_cache_bit_width=bits)
            past = [c.i8(batch, kv, room, size) if bits == 8 else c.u8(batch, kv, room, size // 2) for _ in past]
            scales = [np.float32([0.1]) if kind == "PER_TENSOR" else c.positive(1, kv, 1, size) / 10 for _ in past]
    caches = [None, None, None]
    if c.chance(0.5):
        angles = f(32, size // 2)
        attrs.update(do_rotary=1, rotary_interleaved=c.pick(0, 1))
        positions = np.arange(length, dtype=np.int64)[None] + ends[:, None] - length + 1 if c.chance(0.3) else None
        caches = [np.cos(angles), np.sin(angles), positions]
    for name, value, p in (("local_window_size", int(rng.integers(1, 6)), 0.3), ("softcap", 2.0, 0.3), ("smooth_softmax", 1, 0.2), ("scale", 0.4, 0.2)):
        if c.chance(p):
            attrs[name] = value
    if "local_window_size" not in attrs and c.chance(0.15):
        attrs["causal"] = 0
    bias = f(c.pick(1, batch), c.pick(1, heads), length, total) if c.chance(0.2) else None
    sink = f(heads) if c.chance(0.2) else None
    if c.chance(0.25):
        attrs["qk_output"] = c.pick(1, 2)
        outputs = "xxxf"
    inputs = [*qkv, *past, ends, np.int32([total]), *caches, bias, sink, *scales]
    c.ms(f"gqa_{i}", "GroupQueryAttention", inputs, outputs, **attrs)


def quantized_attention(c, i):
    rng = c.rng
    batch, length, heads, size = c.pick(1, 2), c.pick(1, 5), 2, 4
    hidden, before = heads * size, c.pick(None, 2)
    total = length + (before or 0)
    kind = c.pick(c.u8, c.i8)
    each = c.chance(0.5)
    scale = c.positive(3 * hidden) / 50 if each else np.float32(0.02)
    zero = kind(3 * hidden) if each else kind(1)[0]
    mask = c.pick(None, rng.integers(1, total + 1, batch).astype(np.int32), c.mask(batch, total))
    past = c.f32(2, batch, heads, before, size) if before else None
    inputs = [c.u8(batch, length, 12), kind(12, 3 * hidden), c.f32(3 * hidden), np.float32(0.01), scale, mask, np.uint8(120), zero, past]
    attrs = {"unidirectional": 1} if c.chance(0.4) else {}
    c.ms(f"qattention_{i}", "QAttention", inputs, "xx" if past is not None else "x", num_heads=heads, constant=[1], **attrs)


def few_bits(c, i):
    bits, block, n = c.pick(2, 4, 4, 8), c.pick(16, 32, 64, 128), c.pick(1, 9, 16, 33)
    k = max(int(c.rng.integers(1, 5)) * block // c.pick(1, 1, 2), block // 2)
    blocks, kind = -(-k // block), c.pick(np.float32, np.float32, np.float16)
    zeros = c.pick(None, c.u8(n * -(-blocks * bits // 8)))
    if bits == 4 and c.chance(0.3):
        zeros = (c.rng.random((n, blocks)) * 10).astype(kind)
    bias = c.f32(n).astype(kind) if c.chance(0.3) else None
    inputs = [c.f32(*c.pick((3, k), (2, 3, k), (1, k))).astype(kind), c.u8(n, blocks, block * bits // 8), c.f32(n, blocks).astype(kind), zeros, None, bias]
    c.ms(f"nbits_{i}", "MatMulNBits", inputs, constant=c.pick((1, 2, 3), (1, 2), ()), K=k, N=n, bits=bits, block_size=block)
    k = c.pick(32, 48)
    block = c.pick(16, 64)
    bnb = [c.f32(3, k), c.u8((5 * k + 1) // 2), c.positive(-(-5 * k // block))]
    c.ms(f"bnb4_{i}", "MatMulBnb4", bnb, constant=c.pick((1, 2), ()), K=k, N=5, block_size=block, quant_type=i % 2)


def positions(c, i):
    batch, length, heads, size = c.pick(1, 2), c.pick(1, 5), c.pick(1, 2, 4), c.pick(8, 16)
    part, angles = c.pick(0, 0, 8), None
    angles = c.f32(20, (part or size) // 2)
    attrs = {"interleaved": c.pick(0, 1)}
    if part:
        attrs.update(rotary_embedding_dim=part, num_heads=heads)
    x = c.pick(c.f32(batch, length, heads * size), c.f32(batch, heads, length, size))
    at = c.pick(c.rng.integers(0, 20, (batch, length)), np.int64([3]))
    c.ms(f"rotary_{i}", "RotaryEmbedding", [x, at, np.cos(angles), np.sin(angles)], **attrs)
    angles = c.f32(20, 8)
    section = c.pick([3, 3, 2], [8, 0, 0], [2, 3, 3])
    x = c.pick(c.f32(2, 5, 32), c.f32(2, 2, 5, 16))
    inputs = [x, c.rng.integers(0, 20, (3, 2, 5)), np.cos(angles), np.sin(angles)]
    c.ms(f"mrotary_{i}", "MRotaryEmbedding", inputs, num_heads=2, rotary_embedding_dim=16, mrope_section=section, mrope_layout=c.pick(0, 1), interleaved=c.pick(0, 1))


def norms(c, i):
    batch, length, hidden, f, rng = c.pick(1, 2), c.pick(1, 4), 8, c.f32, c.rng
    kind = c.pick(np.float32, np.float32, np.float16)
    skip = c.pick(f(batch, length, hidden), f(length, hidden), f(1, length, hidden))
    inputs = [f(batch, length, hidden), skip, f(hidden), f(hidden) if c.chance(0.6) else None, f(hidden) if c.chance(0.5) else None]
    inputs = [None if x is None else x.astype(kind) for x in inputs]
    c.ms(f"skip_{i}", "SkipLayerNormalization", inputs, c.pick("x", "x--x"), epsilon=1e-5)
    c.ms(f"skip_rms_{i}", "SkipSimplifiedLayerNormalization", inputs[:4], c.pick("x", "x--x"), epsilon=1e-5)
    ids, segments = c.i32(0, 9, batch, length), c.i32(0, 2, batch, length) if c.chance(0.7) else None
    mask = (np.arange(length)[None] < rng.integers(1, length + 1, (batch, 1))).astype(np.int32) if c.chance(0.6) else None
    at = c.i32(0, 6, c.pick(1, batch), length) if c.chance(0.3) else None
    rows = None if segments is None else f(2, hidden)
    c.ms(f"embed_{i}", "EmbedLayerNormalization", [ids, segments, f(9, hidden), f(6, hidden), rows, f(hidden), f(hidden), mask, at], c.pick("xx", "xxx"), epsilon=1e-12)
    seg = segments is not None
    tables = [c.u8(9, hidden), c.u8(6, hidden), c.u8(2, hidden) if seg else None, c.u8(hidden), c.u8(hidden)]
    scales = [None if t is None else np.float32(rng.uniform(0.005, 0.05)) for t in tables]
    zeros = [None if t is None else np.uint8(rng.integers(100, 150)) for t in tables]
    c.ms(f"qembed_{i}", "QEmbedLayerNormalization", [ids, segments, *tables, mask, *scales, *zeros], 2)


def tables(c, i):
    bits, rng = c.pick(2, 4, 8), c.rng
    per = 8 // bits
    inputs = [c.u8(6, 64 // per), rng.integers(-6, 6, (2, 3)), c.f32(6, 4)] + ([c.u8(6, -(-4 // per))] if i % 2 else [])
    c.ms(f"gather_bytes_{i}", "GatherBlockQuantized", inputs, constant=(0, 2, 3), bits=bits, block_size=16, quantize_axis=1, gather_axis=0)
    kind, low = (ml_dtypes.uint4, 0) if i % 2 else (ml_dtypes.int4, -8)
    gather, quantize = c.pick((0, 1), (1, 0), (0, 2), (1, 2), (2, 1))
    shape = [6, 5, 4]
    shape[quantize] = 40
    blocks = list(shape)
    blocks[quantize] = 3
    codes = [rng.integers(low, low + 16, s).astype(kind) for s in (shape, blocks)]
    index = rng.integers(0, 4, c.pick((2,), (2, 2))).astype(c.pick(np.int32, np.int64))
    inputs = [codes[0], index, c.f32(*blocks)] + ([codes[1]] if c.chance(0.5) else [])
    c.ms(f"gather_codes_{i}", "GatherBlockQuantized", inputs, constant=(0, 2, 3), block_size=16, quantize_axis=quantize, gather_axis=gather)


def old_names(c, i):
    f, rng = c.f32, c.rng
    c.ms(f"transposematmul_{i}", "TransposeMatMul", [f(2, 4, 3), f(2, 5, 4)], transA=1, transB=1, alpha=0.5)
    c.ms(f"trilu_{i}", "Trilu", [f(2, 4, 3), np.int64(c.pick(-1, 0, 1, 2))], upper=c.pick(0, 1))
    c.ms(f"gridsample_{i}", "GridSample", [f(1, 2, 5, 6), f(1, 3, 4, 2)], mode=c.pick("bilinear", "nearest", "bicubic"), padding_mode=c.pick("zeros", "border", "reflection"), align_corners=c.pick(0, 1))
    c.ms(f"gathernd_{i}", "GatherND", [f(3, 4, 5), rng.integers(0, 3, (2, 2)).astype(c.pick(np.int32, np.int64))])
    c.ms(f"pad_{i}", "Pad", [f(3, 4), rng.integers(0, 3, 4), np.float32([2.5])], mode="constant")
    c.ms(f"pad_mode_{i}", "Pad", [f(4, 5), rng.integers(0, 3, 4)], mode=c.pick("reflect", "edge"))
    c.ms(f"range_{i}", "Range", [np.int64(2), np.int64(9)] + ([np.int64(3)] if i % 2 else []))
    c.ms(f"unique_{i}", "Unique", [rng.integers(0, 5, 12).astype(np.float32)], 3)
    c.ms(f"cdist_{i}", "CDist", [f(3, 4), f(5, 4)], metric=c.pick("euclidean", "sqeuclidean"))
    c.ms(f"ngram_{i}", "NGramRepeatBlock", [rng.integers(0, 3, (2, 7)), f(2, 5)], ngram_size=c.pick(1, 2, 3))
    source = rng.integers(0, 4, 7)
    current = np.r_[1, source[:2]]
    c.ms(f"fork_{i}", "BifurcationDetector", [source, current, np.int64([2]), np.r_[source[2:5], rng.integers(0, 4, 3)]], 2)
    c.ms(f"fork_only_{i}", "BifurcationDetector", [source, current, np.int64([0])], 2, max_ngram_size=c.pick(1, 2, 3))
    hashed = c.pick(np.array(["a", "abcd", "hello world", ""], object), rng.integers(0, 99, 4), c.i32(0, 99, 4), f(3))
    c.ms(f"murmur_{i}", "MurmurHash3", [hashed], positive=c.pick(0, 1), seed=c.pick(0, 7))
    c.ms(f"linear_{i}", "LinearAttention", [f(2, 5, 16), f(2, 5, 8), f(2, 5, 12), None, -c.positive(2, 5, 2), c.positive(2, 5, 2)], 2, q_num_heads=4, kv_num_heads=2)
    c.ms(f"causal_{i}", "CausalConvWithState", [f(2, 4, 7), f(4, 1, 3), f(4), c.pick(f(2, 4, 2), None)], 2, activation=c.pick("silu", "none"))
    for op in ("Affine", "ScaledTanh", "ParametricSoftplus"):
        c.case(f"{op}_{i}", op, c.pick(7, 9), [f(2, 3)], alpha=0.5, beta=2.0)
    c.case(f"Scale_{i}", "Scale", 7, [f(2, 3)], scale=0.5)
    c.case(f"ImageScaler_{i}", "ImageScaler", 8, [f(2, 3, 4, 5)], scale=0.5, bias=[1.0, 2.0, 3.0])
    c.case(f"Crop_{i}", "Crop", 8, [f(2, 3, 8, 9)], border=[1, 2, 1, 0], **c.pick({}, {"scale": [3, 4]}))


def bytes_and_functions(c, i):
    kind, zero = c.pick((c.u8, np.uint8), (c.i8, np.int8))
    condition = c.rng.random(c.pick((3, 4), (1, 4), (3, 1))) < 0.5
    where = [condition, kind(*c.pick((3, 4), (4,))), np.float32(0.02), zero(5), kind(3, 4), np.float32(0.03), zero(7), np.float32(0.0511), zero(3)]
    c.ms(f"qwhere_{i}", "QLinearWhere", where)
    c.ms(f"nhwc_{i}", "NhwcMaxPool", [kind(2, 7, 6, 3)], kernel_shape=[2, 3], strides=[c.pick(1, 2), 2], pads=c.pick([0, 0, 0, 0], [1, 1, 0, 1]))
    softmax = [kind(2, 3, 4), np.float32(0.05), zero(7), np.float32(1 / 256), zero(0)]
    c.ms(f"qsoftmax_{i}", "QLinearSoftmax", softmax, axis=c.pick(0, 1, -1), opset=c.pick(12, 13), constant=[1, 2, 3, 4])
    function = ("Elu", "Selu", "Softplus", "Softsign", "ThresholdedRelu", "LeakyRelu", "HardSigmoid", "Tanh")[i % 8]
    more = {"activation_alpha": 0.3} if function in ("Elu", "ThresholdedRelu", "LeakyRelu", "HardSigmoid") else {}
    if function == "HardSigmoid":
        more["activation_beta"] = 0.4
    if function == "Selu":
        more = {"activation_alpha": 1.6, "activation_gamma": 1.05}
    c.ms(f"fusedgemm_{i}", "FusedGemm", [c.f32(3, 4), c.f32(4, 5), c.f32(5)], alpha=0.5, activation=function, **more)


# (what draws, how many, the least that ONNX Runtime answers)
FAMILIES = [(multi_head, 60, 50), (attention, 60, 55), (grouped, 100, 80), (quantized_attention, 16, 16), (few_bits, 24, 44), (positions, 16, 30),
            (norms, 12, 45), (tables, 12, 22), (old_names, 8, 150), (bytes_and_functions, 8, 32)]  # fmt: skip


@pytest.mark.parametrize("draw, count, least", FAMILIES, ids=[d.__name__ for d, _, _ in FAMILIES])
def test_agrees_with_onnxruntime(churon, tmp_path, draw, count, least):
    c = Draw(len(draw.__name__))
    for i in range(count):
        draw(c, i)
    rows, refused = c.run(churon, tmp_path)
    assert len(rows) >= least, f"{len(rows)} of {len(c.specs)}: {set(refused.values())}"
    wrong = [f"{name}: {row['why']}" for name, row in rows.items() if not row["ok"]]
    assert not wrong, "\n".join(wrong)


def test_lstm_of_bytes_is_near_its_rounded_form(churon, tmp_path):
    """ONNX Runtime rounds inputs and states to bytes at every step; here they stay what they are."""
    c = Draw(3)
    for i in range(12):
        way = c.pick("forward", "reverse", "bidirectional")
        n, each = (2 if way == "bidirectional" else 1), c.chance(0.5)
        kind, zero = c.pick((c.u8, np.uint8(120)), (c.i8, np.int8(0)))
        quant = [part for _ in "WR" for part in (c.positive(*(n, 24) if each else (n,)) / 50, np.full((n, 24) if each else (n,), zero))]
        state = c.f32(n, 3, 6) if c.chance(0.5) else None
        inputs = [c.f32(5, 3, 4), kind(n, 4, 24), kind(n, 6, 24), c.f32(n, 48), None, state, None, None, *quant]
        c.ms(f"lstm_{i}", "DynamicQuantizeLSTM", inputs, 3, hidden_size=6, direction=way, constant=c.pick((1, 2, 8, 9, 10, 11), (1, 2)))
    rows, refused = c.run(churon, tmp_path, rtol="0.02", atol="0.03")
    assert len(rows) == 12, refused
    wrong = [f"{name}: {row['why']}" for name, row in rows.items() if not row["ok"]]
    assert not wrong, "\n".join(wrong)


def test_norms_of_queries_and_keys(churon, tmp_path):
    """q_norm_weight and k_norm_weight are SimplifiedLayerNormalization of each head before the rotation."""
    from onnx import helper, numpy_helper
    from ort_case import write_case

    c = Draw(4)
    q, k, v, wq, wk = c.f32(2, 3, 64), c.f32(2, 3, 32), c.f32(2, 3, 32), c.f32(16), c.f32(16)
    angles = c.f32(20, 8)
    normed = [(x.reshape(2, 3, -1, 16) / np.sqrt((x.reshape(2, 3, -1, 16) ** 2).mean(-1, keepdims=True) + 1e-5) * w).reshape(x.shape) for x, w in ((q, wq), (k, wk))]
    both = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    rest = [None, None, np.int32([2, 2]), np.int32([3]), np.cos(angles), np.sin(angles)]
    c.ms("plain", "GroupQueryAttention", [*normed, v, *rest], 3, **both)
    rows, refused = c.run(churon, tmp_path / "plain")
    assert rows["plain"]["ok"], (rows, refused)
    results = [numpy_helper.to_array(onnx.load_tensor(str(tmp_path / f"plain/plain/test_data_set_0/output_{i}.pb"))) for i in range(3)]
    feeds = {f"x{i}": x for i, x in enumerate([q, k, v, *rest, None, None, None, None, None, wq, wk]) if x is not None}
    names = [f"x{i}" if f"x{i}" in feeds else "" for i in range(16)]
    node = helper.make_node("GroupQueryAttention", names, ["y0", "y1", "y2"], domain="com.microsoft", qk_norm_epsilon=1e-5, **both)
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()]
    outs = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(3)]
    model = helper.make_model(helper.make_graph([node], "g", infos, outs), opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8)
    write_case(tmp_path / "normed" / "case", model, feeds, ["y0", "y1", "y2"], results)
    again = Cases(0)
    rows, _ = again.run(churon, tmp_path / "normed")
    assert rows["case"]["ok"], rows["case"]["why"]


def refusal(op, inputs, words, domain="com.microsoft", version=1, **attrs):
    return pytest.param(op, inputs, words, domain, version, attrs, id=words.split(":")[0].replace(" ", "_"))


F, U, I = (lambda *s: np.zeros(s, np.float32)), (lambda *s: np.zeros(s, np.uint8)), (lambda *s: np.zeros(s, np.int64))
GQA = [F(1, 1, 64), F(1, 1, 32), F(1, 1, 32)]
HEADS = {"num_heads": 4, "kv_num_heads": 2}
CACHE = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"}


@pytest.mark.parametrize("op, inputs, words, domain, version, attrs", [
    refusal("GroupQueryAttention", [*GQA, None, None, np.int32([5]), np.int32([9])], "seqlens_k[0]: keys that fit", **HEADS),
    refusal("GroupQueryAttention", [*GQA, None, None, np.int32([0]), np.int32([-1])], "total_sequence_length: at least 0", **HEADS),
    refusal("GroupQueryAttention", [*GQA, F(1, 2, 4, 16), F(1, 2, 4, 16), np.int32([4]), np.int32([5]), None, None, None, None, None, F(1), F(1)], "past_key: int8 expected", **HEADS, **CACHE),
    refusal("GroupQueryAttention", [*GQA, None, None, np.int32([0]), np.int32([1])], "k_scale, v_scale: values", **HEADS, **CACHE),
    refusal("GroupQueryAttention", [*GQA, None, None, np.int32([0]), np.int32([1])], "sliding_window_cache: 0 expected", sliding_window_cache=1, **HEADS),
    refusal("MatMulBnb4", [F(2, 32), U(10), F(5)], "B, absmax: sizes that fit", K=32, N=5, block_size=16, quant_type=1),
    refusal("GatherBlockQuantized", [U(6, 32), np.int64([6]), F(6, 4)], "indices[0]: -6 to 5", block_size=16),
    refusal("GatherBlockQuantized", [U(6, 32), I(1), F(6, 3)], "data in blocks and scales", block_size=16),
    refusal("GatherBlockQuantized", [U(6, 32), I(1), F(6, 4), U(5)], "zero_points: 12 elements", block_size=16),
    refusal("MRotaryEmbedding", [F(1, 2, 32), np.full((3, 1, 2), 99, np.int64), F(20, 8), F(20, 8)], "position_ids: a row of the caches", num_heads=2, mrope_section=[3, 3, 2]),
    refusal("MRotaryEmbedding", [F(1, 2, 32), I(3, 1, 2), F(20, 8), F(20, 8)], "sin_cache, mrope_section", num_heads=2, mrope_section=[3, 3, 9]),
    refusal("BifurcationDetector", [I(7), I(2), np.int64([99]), I(3)], "pred_tokens: one more"),
    refusal("NGramRepeatBlock", [np.full((1, 4), 77, np.int64), F(1, 5)], "input_ids: 0 to 4", ngram_size=2),
    refusal("DynamicQuantizeLSTM", [F(5, 3, 4), U(1, 4, 24), U(1, 6, 24), None, None, None, None, None, F(7), U(7), F(1), U(1)], "W_scale, W_zero_point", hidden_size=6),
    refusal("QEmbedLayerNormalization", [np.int32([[77]]), None, U(9, 8), U(6, 8), None, U(8), U(8), None, F(), F(), None, F(), F(), U(), U(), None, U(), U()], "input_ids[0]: 0 to 8"),
    refusal("Crop", [F(1, 1, 4, 4)], "border: what leaves a part", domain="", version=8, border=[1, 3, 1, 2]),
    refusal("ImageScaler", [F(1, 3, 4, 4)], "channels and bias", domain="", version=8, bias=[1.0, 2.0]),
    refusal("Range", [np.int64(0), np.int64(9), np.int64(0)], "delta: expected not 0"),
    refusal("CDist", [F(2, 3), F(2, 4)], "columns of A and B"),
])  # fmt: skip
def test_what_does_not_fit_is_one_line(churon, tmp_path, op, inputs, words, domain, version, attrs):
    from ort_case import model_of, write_case

    results = {"BifurcationDetector": [I(1), I(1)], "QEmbedLayerNormalization": [F(1), np.zeros(1, np.int32)], "Range": [I(1)]}.get(op, [F(1)])
    model, feeds = model_of(op, domain, version, inputs, "x" * len(results), (), False, None, attrs)
    write_case(tmp_path / "case", model, feeds, [f"y{i}" for i in range(len(results))], results)
    rows, _ = Cases(0).run(churon, tmp_path)
    why = rows["case"]["why"]
    assert not rows["case"]["ok"] and op in why and words in why and "\n" not in why

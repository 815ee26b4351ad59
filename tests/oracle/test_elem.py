"""Element types against numpy and ml_dtypes: every code of every small float, every midpoint, what saturates."""

import pathlib
import subprocess

import ml_dtypes
import numpy as np
import onnx.numpy_helper
import pytest

FLOATS = {
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "float4_e2m1fn": ml_dtypes.float4_e2m1fn,
    "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu, "float6_e2m3fn": ml_dtypes.float6_e2m3fn,
    "float6_e3m2fn": ml_dtypes.float6_e3m2fn,
}
BITS = {"float16": 16, "bfloat16": 16, "float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}
NO_NAN = ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn")


def convert(churon, mode, name, data, dtype):
    tool = pathlib.Path(churon).parent / "tools" / "elem_convert"
    done = subprocess.run([tool, mode, name], input=np.ascontiguousarray(data).tobytes(), capture_output=True)
    assert done.returncode == 0
    return np.frombuffer(done.stdout, dtype)


def codes(name):
    return np.arange(1 << BITS.get(name, 8), dtype=np.uint16 if BITS.get(name, 8) == 16 else np.uint8)


def values(name):
    return codes(name).view(FLOATS[name]).astype(np.float64)


def hard_inputs(name):
    """All values, the middle of each pair of neighbours and the nearest numbers on both sides of it. But for float16
    these are f32: from f64 ml_dtypes rounds twice."""
    v = np.unique(values(name)[np.isfinite(values(name))])
    middles = (v[1:] + v[:-1]) / 2
    top = v[-1] + (v[-1] - v[-2]) / 2
    edge = np.array([top, np.nextafter(top, 0), np.nextafter(top, np.inf), 2 * v[-1], 1e300, np.inf])
    small = np.array([5e-324, 1e-310, v[v > 0][0] / 2, np.nextafter(v[v > 0][0] / 2, 1)])
    x = np.concatenate([v, middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf), edge, small])
    x = np.concatenate([x, -x, [np.nan, 0.0, -0.0]])
    if name == "float16":
        return x
    with np.errstate(all="ignore"):
        middles, x = middles.astype(np.float32), x.astype(np.float32)
    x = np.concatenate([x, np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(-np.inf))])
    return x.astype(np.float64)


@pytest.mark.parametrize("name", FLOATS)
def test_every_code(churon, name):
    got = convert(churon, "to", name, codes(name), np.float64)
    np.testing.assert_array_equal(got, values(name))
    real = ~np.isnan(got)
    np.testing.assert_array_equal(np.signbit(got[real]), np.signbit(values(name)[real]))


def same_codes(name, got, want, x):
    nan = np.isnan(want.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(got.view(FLOATS[name]).astype(np.float64)), nan)
    code = want.view(got.dtype)
    wrong = (got != code) & ~nan
    assert not wrong.any(), list(zip(x[wrong][:5], got[wrong][:5], code[wrong][:5]))


SIGNED = [n for n in FLOATS if n != "float8_e8m0fnu"]


@pytest.mark.parametrize("name", SIGNED)
def test_rounding(churon, name):
    x = hard_inputs(name)
    if name in NO_NAN:
        x = x[~np.isnan(x)]
    with np.errstate(all="ignore"):
        want = x.astype(FLOATS[name])
    same_codes(name, convert(churon, "from", name, x, codes(name).dtype), want, x)


@pytest.mark.parametrize("name", SIGNED)
def test_rounding_from_f32(churon, name):
    with np.errstate(all="ignore"):
        x = hard_inputs(name).astype(np.float32)
        x = np.concatenate([x, np.random.default_rng(1).integers(0, 1 << 32, 200000, np.uint32).view(np.float32)])
        if name in NO_NAN:
            x = x[~np.isnan(x)]
        want = x.astype(FLOATS[name])
    same_codes(name, convert(churon, "from32", name, x, codes(name).dtype), want, x)


@pytest.mark.parametrize("name", [n for n in SIGNED if n.startswith("float8")])
def test_saturation(churon, name):
    x = hard_inputs(name)
    most = float(ml_dtypes.finfo(FLOATS[name]).max)
    want = np.where(np.isnan(x), x, np.clip(x, -most, most)).astype(FLOATS[name])
    same_codes(name, convert(churon, "saturate", name, x, np.uint8), want, x)


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
def test_small_integers(churon, name):
    dtype = getattr(ml_dtypes, name)
    low, high = int(ml_dtypes.iinfo(dtype).min), int(ml_dtypes.iinfo(dtype).max)
    all_codes = np.arange(low, high + 1)
    memory = all_codes.astype(np.int8 if low else np.uint8)
    np.testing.assert_array_equal(convert(churon, "to", name, memory, np.float64), all_codes)
    np.testing.assert_array_equal(convert(churon, "from", name, np.arange(-300.0, 300), memory.dtype),
                                  np.arange(-300, 300).astype(dtype).astype(memory.dtype))


@pytest.mark.parametrize("mode", ["from", "saturate"])
def test_powers_of_two(churon, mode):
    name = "float8_e8m0fnu"
    x = hard_inputs(name)
    x = x[~((np.abs(x) > 2.0**-127) & (np.abs(x) < 1.5 * 2.0**-127))]  # the package rounds these up, whatever is nearer
    want = onnx.numpy_helper.to_float8e8m0(x.astype(np.float32), mode == "saturate", "nearest")
    same_codes(name, convert(churon, mode, name, x, np.uint8), want, x)

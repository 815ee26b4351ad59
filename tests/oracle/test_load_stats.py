"""Percentiles of the load generator against numpy's, for sizes around every rank's edge."""

import fractions
import json
import math
import subprocess

import numpy as np
import pytest

SIZES = [*range(1, 45), 60, 99, 100, 101, 180, 199, 200, 201, 999, 1000, 1001, 4096]


@pytest.fixture(scope="module")
def program(churon):
    import pathlib
    path = pathlib.Path(churon).parent / "tools" / "percentiles"
    if not path.exists():
        pytest.fail(f"{path}: not built")
    return str(path)


def quantiles(program, values):
    text = "\n".join(repr(float(v)) for v in values)
    return json.loads(subprocess.run([program], input=text, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("n", SIZES)
def test_against_numpy(program, n):
    values = np.random.default_rng(n).lognormal(size=n)
    got = quantiles(program, values)
    assert got["n"] == n and got["min"] == values.min() and got["max"] == values.max()
    assert math.isclose(got["mean"], values.mean(), rel_tol=1e-12)
    ordered = np.sort(values)
    for p in (50, 90, 95, 99, fractions.Fraction(7, 10)):
        rank = math.ceil(fractions.Fraction(p) * n / 100)  # nearest rank, exactly
        assert got[f"p{float(p):g}"] == ordered[max(rank, 1) - 1], (n, p)
        # numpy multiplies n by p/100 in floating point, so at an edge it may take the next sample.
        theirs = np.percentile(values, float(p), method="inverted_cdf")
        at = np.searchsorted(ordered, theirs)
        edge = (fractions.Fraction(p) * n / 100).denominator == 1
        assert at == max(rank, 1) - 1 or (edge and at == rank), (n, p)


def test_ties_and_one_value(program):
    assert quantiles(program, [3, 3, 3, 3])["p99"] == 3
    assert quantiles(program, [1, 2])["p50"] == 1

"""The whole chain of the sampler against one written here from the authors' descriptions, in float64.

Repetition penalty: Keskar et al., CTRL (2019). Frequency and presence: OpenAI's API reference. DRY and XTC: the
descriptions of their author (p-e-w). Typical: Meister et al. (2022). Top-p: Holtzman et al. (2020). Min-p: Nguyen
et al. (2024). The kept set, the probabilities, the chosen token and the log-probabilities are compared on random
cases; a case in which a border falls within rounding of a probability is left out and counted.
"""

import json
import pathlib
import subprocess

import numpy as np
import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
F32 = np.float32


class Ambiguous(Exception):
    """A border lies closer to a value than rounding can tell."""


def near(a, b, scale=1.0):
    return abs(a - b) < 2e-5 * max(scale, abs(a), abs(b))


def penalize(x, case):
    p = case["params"]
    x = x.astype(np.float64).copy()
    for i, b in case["bias"]:
        x[i] += -np.inf if b is None else float(F32(b))
    seen = case["accepted"]
    last_n = p["repeat_last_n"]
    window = seen[len(seen) - min(last_n, len(seen)):]
    for i in set(window):
        c = window.count(i)
        r = float(F32(p["repeat_penalty"]))
        x[i] = x[i] / r if x[i] > 0 else x[i] * r
        if r != 1 or p["frequency_penalty"] or p["presence_penalty"]:
            x[i] -= c * float(F32(p["frequency_penalty"])) + float(F32(p["presence_penalty"]))
    return dry(x, case)


def dry(x, case):
    p = case["params"]
    if not p["dry_multiplier"]:
        return x
    seen, breakers = case["accepted"], set(case["breakers"])
    last_n = p["dry_last_n"] or len(seen)
    t = seen[len(seen) - min(last_n, len(seen)):]
    longest = {}
    for i in range(len(t) - 1):
        run = 0
        while run <= i and t[i - run] == t[len(t) - 1 - run] and t[i - run] not in breakers:
            run += 1
        if run >= p["dry_allowed_length"] and t[i + 1] not in breakers:
            longest[t[i + 1]] = max(longest.get(t[i + 1], 0), run)
    for i, run in longest.items():
        x[i] -= float(F32(p["dry_multiplier"])) * float(F32(p["dry_base"])) ** (run - p["dry_allowed_length"])
    return x


def smallest_prefix(order, p, wanted):
    """The shortest prefix of `order` whose probability reaches `wanted`."""
    reached = np.cumsum(p[order])
    n = int(np.searchsorted(reached, wanted * (1 - 1e-12))) + 1
    n = min(n, len(order))
    for r in reached[max(0, n - 2):n + 1]:
        if near(r, wanted) and wanted < 1:
            raise Ambiguous
    return order[:n]


def distribution(case, x, coin):
    """Ids in descending order and their probabilities."""
    p = case["params"]
    order = np.lexsort((np.arange(len(x)), -x))
    order = order[x[order] > -np.inf]
    if p["temperature"] == 0:
        return order[:1], np.ones(1)
    if p["top_k"]:
        order = order[: p["top_k"]]
    t = (x - x[order[0]]) / float(F32(p["temperature"]))
    w = np.exp(t)

    def probabilities(ids):
        q = np.zeros(len(x))
        q[ids] = w[ids] / w[ids].sum()
        return q

    if p["typical_p"] < 1:
        q = probabilities(order)
        live = order[q[order] > 1e-36]
        entropy = -(q[live] * np.log(q[live])).sum()
        distance = np.abs(-np.log(q[live]) - entropy)
        rank = np.argsort(distance, kind="stable")
        kept = smallest_prefix(live[rank], q, float(F32(p["typical_p"])))
        n = len(kept)
        if n < len(rank) and near(distance[rank[n - 1]], distance[rank[n]]):
            raise Ambiguous
        order = order[np.isin(order, kept)]
    if p["top_p"] < 1:
        order = smallest_prefix(order, probabilities(order), float(F32(p["top_p"])))
    if p["min_p"] > 0:
        border = t[order[0]] + np.log(float(F32(p["min_p"])))
        if any(near(v, border) for v in t[order]):
            raise Ambiguous
        order = order[t[order] >= border]
    if p["xtc_probability"] > 0:
        q = probabilities(order)
        border = float(F32(p["xtc_threshold"]))
        if any(near(v, border, 0.0) for v in q[order]):
            raise Ambiguous
        above = int((q[order] >= border).sum())
        if above >= 2 and coin < float(F32(p["xtc_probability"])):
            order = order[above - 1:]
    return order, probabilities(order)[order]


def random_case(rng, number):
    n = int(rng.choice([2, 7, 60, 500, 1024, 1025, 2000, 3000]))
    spread = float(rng.choice([0.3, 2, 6]))
    x = (rng.standard_normal(n) * spread).astype(F32)
    if number % 6 == 0:  # ties
        x = np.round(x * 2).astype(F32)
    if number % 9 == 0:
        x[rng.integers(n)] = -np.inf
    few = int(min(n, rng.choice([2, 5, 30])))
    maybe = lambda chance, value, otherwise: value if rng.random() < chance else otherwise  # noqa: E731
    params = {
        "seed": int(rng.integers(1 << 60)),
        "temperature": maybe(0.1, 0.0, float(np.round(rng.uniform(0.2, 2.5), 3))),
        "top_k": int(rng.choice([0, 0, 0, 1, 3, 40, 1024, 1500])),
        "top_p": maybe(0.5, float(np.round(rng.uniform(0, 1), 3)), 1.0),
        "min_p": maybe(0.4, float(np.round(rng.uniform(0, 0.3), 3)), 0.0),
        "typical_p": maybe(0.25, float(np.round(rng.uniform(0.1, 1), 3)), 1.0),
        "repeat_penalty": maybe(0.4, float(np.round(rng.uniform(0.8, 1.6), 3)), 1.0),
        "repeat_last_n": int(rng.choice([0, 5, 64])),
        "frequency_penalty": maybe(0.3, float(np.round(rng.uniform(-1, 1), 3)), 0.0),
        "presence_penalty": maybe(0.3, float(np.round(rng.uniform(-1, 1), 3)), 0.0),
        "dry_multiplier": maybe(0.4, 0.8, 0.0),
        "dry_base": 1.75,
        "dry_allowed_length": int(rng.choice([1, 2, 3])),
        "dry_last_n": int(rng.choice([0, 20])),
        "xtc_probability": maybe(0.4, 0.5, 0.0),
        "xtc_threshold": float(rng.choice([0.001, 0.02, 0.1, 0.3])),
        "n_logprobs": int(min(n, rng.choice([0, 1, 5]))),
    }
    bias = [[int(i), None if rng.random() < 0.3 else float(np.round(rng.normal(0, 3), 2))]
            for i in rng.choice(n, size=min(n - 1, int(rng.choice([0, 0, 3]))), replace=False)]
    return {
        "params": params,
        "index": int(rng.integers(1000)),
        "accepted": [int(i) for i in rng.integers(few, size=int(rng.choice([0, 10, 100])))],
        "breakers": [0] if rng.random() < 0.5 else [],
        "bias": bias,
        "x": x,
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    rng = np.random.default_rng(20240607)
    cases = [random_case(rng, i) for i in range(4000)]
    folder = tmp_path_factory.mktemp("sampler")
    np.concatenate([c["x"] for c in cases]).tofile(folder / "logits.f32")
    lines, at = [], 0
    for c in cases:
        lines.append(json.dumps({k: v for k, v in c.items() if k != "x"} | {"at": at, "n": len(c["x"])}))
        at += len(c["x"])
    tool = TOP / "build" / "release" / "tools" / "sample"
    run = subprocess.run([tool, folder / "logits.f32"], input="\n".join(lines) + "\n", capture_output=True,
                         text=True, check=True)
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(answers) == len(cases)
    pairs = []
    for case, got in zip(cases, answers):
        possible = (penalize(case["x"], case) > -np.inf).any()
        assert ("id" in got) == possible, got
        if possible:
            pairs.append((case, got))
    assert len(pairs) > len(cases) * 0.9
    return pairs


def test_kept_sets_and_probabilities(results):
    ambiguous = 0
    for number, (case, got) in enumerate(results):
        x = penalize(case["x"], case)
        try:
            ids, p = distribution(case, x, got["uniform"][1])
        except Ambiguous:
            ambiguous += 1
            continue
        shown = {k: v for k, v in case.items() if k != "x"}
        live = p > 1e-30
        kept = {i: q for i, q in got["kept"]}
        if len(set(np.round(x[ids], 5))) == len(ids) or case["params"]["temperature"] == 0:
            assert set(ids[live]) <= set(kept) | {i for i, q in zip(ids, p) if q < 1e-30}, (number, shown)
        assert len(kept) >= live.sum() and len(kept) <= len(ids), (number, shown, len(kept), len(ids))
        for i, q in zip(ids, p):
            if q > 1e-30 and case["params"]["temperature"] > 0:
                assert abs(kept.get(int(i), -1) - q) < 2e-5 * q + 1e-12, (number, shown, int(i), q, kept.get(int(i)))
    assert ambiguous < len(results) // 10


def test_the_draw_is_one_of_the_kept(results):
    for case, got in results:
        assert got["id"] in {i for i, _ in got["kept"]}


def test_log_probabilities_are_of_the_raw_logits(results):
    for case, got in results:
        x = case["x"].astype(np.float64)
        largest = x.max()
        lse = largest + np.log(np.exp(x - largest).sum())
        if x[got["id"]] > -np.inf:
            assert abs(got["logprob"] - (x[got["id"]] - lse)) < 2e-5
        order = np.lexsort((np.arange(len(x)), -x))[: case["params"]["n_logprobs"]]
        assert [i for i, _ in got["top"]] == [int(i) for i in order]
        for i, lp in got["top"]:
            if x[i] > -np.inf:
                assert abs(lp - (x[i] - lse)) < 2e-5


def test_draws_follow_the_uniform_number(results):
    """Where the draw order is by descending probability (a list), the token is the one at the uniform number."""
    checked = 0
    for case, got in results:
        p = case["params"]
        in_list = p["temperature"] > 0 and (len(case["x"]) <= 1024 or 1 < p["top_k"] <= 1024)
        if not in_list:
            continue
        reached = np.cumsum([q for _, q in got["kept"]])
        u = got["uniform"][0]
        if min(abs(reached - u)) < 1e-9:
            continue
        assert got["id"] == got["kept"][int(np.searchsorted(reached, u))][0]
        checked += 1
    assert checked > 500

"""The engine's logits against the numpy forward pass: every architecture, rotary scaling and element type."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fixtures"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import forward  # noqa: E402
import ggml_blocks  # noqa: E402
import make_gguf  # noqa: E402

F32_CASES = [
    *[f"--arch {arch}" for arch in make_gguf.ARCHITECTURES],
    *[f"--arch {arch} --scaling {s}" for arch in ("llama", "qwen2", "qwen3", "gemma3") for s in ("linear", "yarn")],
    "--arch llama --scaling llama3",
    "--arch llama --bias",
    "--arch llama --output tied",
    "--arch llama --kv-heads 4",
    "--arch llama --kv-heads 1",
    "--arch llama --head-dim 32",
    "--arch llama --head-dim 64 --heads 3 --kv-heads 1",
    "--arch qwen3 --output tied",
    "--arch gemma2 --window 7",
    "--arch gemma3 --window 0",
    "--arch gemma3 --output separate",
    "--arch llama --parts 3",
    "--arch llama --version 2 --alignment 64",
    "--arch llama --tokenizer llama",
]


def churon_logits(churon, model, sequences, threads=1, step=0, env=None):
    tool = pathlib.Path(churon).parent / "tools" / "logits"
    lines = "".join(" ".join(map(str, ids)) + "\n" for ids in sequences)
    command = [tool, model, str(threads), str(step)]
    run = subprocess.run(command, input=lines.encode(), capture_output=True, env=env)
    assert run.returncode == 0, run.stderr.decode()
    return np.frombuffer(run.stdout, np.float32).reshape(sum(map(len, sequences)), -1)


def make(tmp_path, arguments):
    return make_gguf.main([str(tmp_path / "m.gguf"), *arguments.split()])[0]


def some_ids(n, seed=5):
    return np.random.default_rng(seed).integers(3, 320, n).tolist()


def compare(churon, path, ids, model_path=None):
    """Log-probabilities: exact, with keys and values kept in f16 as the engine does, and the engine's."""
    got = churon_logits(churon, path, [ids])
    exact = forward.Model(model_path or path).logits(ids)
    half = forward.Model(model_path or path, cache=np.float16).logits(ids)
    assert got.shape == exact.shape
    return (forward.log_softmax(x) for x in (exact, half, got))


@pytest.mark.parametrize("arguments", F32_CASES)
def test_f32_weights(churon, tmp_path, arguments):
    # 300 positions: several pages of the cache, more than one chunk of attention.
    path = make(tmp_path, arguments)
    whole = make(tmp_path, arguments.replace("--parts 3", "")) if "--parts" in arguments else path
    exact, half, got = compare(churon, path, some_ids(300), whole)
    assert np.abs(half - got).max() <= 0.001
    assert forward.kl(exact, got).mean() <= 1e-6  # what the f16 cache costs


@pytest.mark.parametrize("kind", [*list(ggml_blocks.TYPES)[1:], "mix"])
def test_other_weights(churon, tmp_path, kind):
    """The engine rounds activations to 8 bits in front of quantized weights; the numpy pass does not."""
    path = make(tmp_path, f"--arch llama --type {kind}")
    exact, half, got = compare(churon, path, some_ids(120))
    if kind in ("f16", "bf16"):
        assert np.abs(half - got).max() <= 0.001
    assert forward.kl(exact, got).mean() <= (1e-6 if kind in ("f16", "bf16") else 3e-4)


def test_chunks_and_threads_change_nothing(churon, tmp_path):
    path = make(tmp_path, "--arch llama --type q4_1")
    ids = some_ids(150)
    whole = churon_logits(churon, path, [ids])
    for threads, step in ((1, 7), (2, 0), (2, 64)):
        assert (churon_logits(churon, path, [ids], threads, step).view(np.uint32) == whole.view(np.uint32)).all()
    # A sequence after another one in the same engine finds no trace of it.
    both = churon_logits(churon, path, [some_ids(90, seed=6), ids])
    assert (both[90:].view(np.uint32) == whole.view(np.uint32)).all()


@pytest.mark.parametrize("arguments", ["--arch qwen3 --type q8_0", "--arch gemma3 --type q4_k", "--arch llama"])
def test_instruction_sets_agree(churon, tmp_path, arguments):
    import os

    path = make(tmp_path, arguments)
    ids = some_ids(100)
    results = {}
    for isa in ("ref", "avx2", "avx512"):
        try:
            results[isa] = churon_logits(churon, path, [ids], env={**os.environ, "CHURON_CPU": isa})
        except AssertionError as lacking:
            if isa == "ref" or "CHURON_CPU" not in str(lacking):
                raise
    for isa, logits in results.items():
        assert (logits.view(np.uint32) == results["ref"].view(np.uint32)).all(), isa


# What the comparison is able to see: each of these mistakes must move some log-probability by far more than the
# tolerance above.
MISTAKES = {
    "rotary pairs": ("--arch llama", lambda m: setattr(m, "interleaved", False)),
    "no fourth layer without rotation": ("--arch smollm3", lambda m: setattr(m, "has_rope", lambda layer: True)),
    "window too long by one": ("--arch gemma3", lambda m: setattr(m, "window", m.window + 1)),
    "window of the wrong layers": ("--arch gemma2", lambda m: setattr(m, "has_window", lambda layer: layer % 2)),
    "one base for all layers": ("--arch gemma3", lambda m: m.keys.update({f"{m.arch}.rope.freq_base_swa": Key(1e6)})),
    "no cap on scores": ("--arch gemma2", lambda m: setattr(m, "attn_cap", 0.0)),
    "no cap on logits": ("--arch gemma2", lambda m: setattr(m, "final_cap", 0.0)),
    "yarn's magnitude": ("--arch qwen2 --scaling yarn",
                         lambda m: m.keys.update({f"{m.arch}.rope.scaling.attn_factor": Key(1 / 1.1386)})),
    "divisors ignored": ("--arch llama --scaling llama3", lambda m: m.weights.pop("rope_freqs.weight")),
    "linear factor ignored": ("--arch llama --scaling linear", lambda m: setattr(m, "factor", 1.0)),
    "norms of q and k": ("--arch qwen3", lambda m: [m.weights.pop(f"blk.{i}.attn_q_norm.weight") for i in range(2)]),
    "bias": ("--arch qwen2", lambda m: m.weights.pop("blk.1.attn_q.bias")),
    "scale of scores": ("--arch gemma", lambda m: setattr(m, "scale", 1 / np.sqrt(m.n_embd / m.n_head))),
    "eps": ("--arch llama", lambda m: setattr(m, "eps", 1e-2)),
}


class Key:
    def __init__(self, value):
        self.value = value

    def contents(self):
        return self.value


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_show(tmp_path, name):
    arguments, spoil = MISTAKES[name]
    path, ids = make(tmp_path, arguments), some_ids(120)
    right, wrong = forward.Model(path), forward.Model(path)
    spoil(wrong)
    a, b = (forward.log_softmax(m.logits(ids)) for m in (right, wrong))
    assert np.abs(a - b).max() > 0.02

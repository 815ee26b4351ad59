#!/usr/bin/env python3
"""How far a program's logits are from exact ones, on a fixed text: mean KL divergence and perplexity.

    kl.py MODEL.gguf... --churon build/release/tools/logits [--peer PROGRAM] [--windows N] [--out RESULT.json]

Exact is the numpy forward pass of forward.py over the dequantized weights. The text is cut into windows of 512
tokens; the second half of each is scored, as perplexity of GGUF files is usually measured. Both programs read lines
of token ids on stdin and write the f32 logits of every position (tests/tools/logits.c, tools/peers/logits.cpp).
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import subprocess

import forward
import numpy as np
from gguf import GGUFReader
from tokenizers import Tokenizer, models, pre_tokenizers

# Two texts that every Debian system has (package base-files), 30,003 bytes of English.
TEXTS = [pathlib.Path("/usr/share/common-licenses") / name for name in ("GFDL-1.3", "CC0-1.0")]
TEXT_SHA256 = "ed5c021cc20ed893fc6dd3b4db3af29d47b1f9b3e13b4bcab2e3215275412966"
WINDOW = 512


def text():
    """The text, or None and the reason."""
    try:
        whole = b"".join(p.read_bytes() for p in TEXTS)
    except OSError as e:
        return None, str(e)
    got = hashlib.sha256(whole).hexdigest()
    if got != TEXT_SHA256:
        return None, f"{TEXTS[0].parent}: expected sha256 {TEXT_SHA256}, got {got}"
    return whole.decode(), None


def tokenize(path, s):
    """Ids by the tokenizers library, from the vocabulary in the file (pre-tokenizer "smollm")."""
    fields = GGUFReader(path).fields
    assert fields["tokenizer.ggml.pre"].contents() == "smollm"
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    t = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(tokens)}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return t.encode(s).ids


def run_program(command, windows):
    lines = "".join(" ".join(map(str, ids)) + "\n" for ids in windows)
    done = subprocess.run(command, input=lines.encode(), capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr.decode().strip()}")
    logits = np.frombuffer(done.stdout, np.float32).reshape(len(windows), WINDOW, -1)
    return [w[WINDOW // 2 : -1] for w in logits]


def measure(path, programs, n_windows=None, report=lambda line: None):
    """programs: {name: command}. Gives {name: {"kl", "ppl"}} with "exact" among the names."""
    s, reason = text()
    if reason:
        raise RuntimeError(reason)
    ids = tokenize(path, s)
    windows = [ids[i : i + WINDOW] for i in range(0, len(ids) - WINDOW + 1, WINDOW)][:n_windows]
    exact_model = forward.Model(path, np.float32)
    sums = {name: np.zeros(4) for name in ["exact", *programs]}  # nll, kl, kl^2, agreement of the best token
    for number, window in enumerate(windows):
        targets = np.array(window[WINDOW // 2 + 1 :])
        exact = forward.log_softmax(exact_model.logits(window)[WINDOW // 2 : -1])
        for name in sums:
            p = exact if name == "exact" else forward.log_softmax(run_program(programs[name], [window])[0])
            divergence = forward.kl(exact, p)
            same = (p.argmax(axis=1) == exact.argmax(axis=1)).sum()
            sums[name] += [-p[np.arange(len(targets)), targets].sum(), divergence.sum(), (divergence**2).sum(), same]
        report(f"window {number + 1} of {len(windows)}")
    n = len(windows) * (WINDOW // 2 - 1)
    rows = {}
    for name, (nll, total, squares, same) in sums.items():
        rows[name] = {"ppl": float(np.exp(nll / n))}
        if name != "exact":
            spread = np.sqrt(max(0.0, squares / n - (total / n) ** 2) / n)
            rows[name] |= {"kl": float(total / n), "kl_standard_error": float(spread), "same_top": float(same / n)}
    return {"tokens_scored": n, "rows": rows}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+")
    p.add_argument("--churon", default="build/release/tools/logits")
    p.add_argument("--peer", help="another program with the same in and out")
    p.add_argument("--peer-name", default="peer")
    p.add_argument("--windows", type=int)
    p.add_argument("--out")
    a = p.parse_args()
    whole = {"date": datetime.date.today().isoformat(), "text_sha256": TEXT_SHA256, "window": WINDOW, "files": {}}
    for model in a.models:
        programs = {"churon": [a.churon, model, "2"]}
        if a.peer:
            programs[a.peer_name] = [a.peer, model, "2"]
        result = measure(model, programs, a.windows, report=lambda line: print(model, line, flush=True))
        with open(model, "rb") as f:
            sha256 = hashlib.file_digest(f, "sha256").hexdigest()
        whole["files"][pathlib.Path(model).stem] = {"sha256": sha256, **result}
        print(json.dumps(result, indent=2), flush=True)
        if a.out:
            pathlib.Path(a.out).write_text(json.dumps(whole, indent=2) + "\n")


if __name__ == "__main__":
    main()

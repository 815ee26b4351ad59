"""What tools/bench.sh prints. Environment: PEER_DIR, REPS, FILES (such as "Q4_1 Q8_0"), CHURON."""

import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
CHURON = os.environ.get("CHURON", str(TOP / "build/release/churon"))
PEER_DIR = pathlib.Path(os.environ.get("PEER_DIR", TOP / "build/peers/bin"))
REPS = int(os.environ.get("REPS", "5"))
OUT = TOP / "build/bench"
TYPES = ["Q4_1", "Q4_0", "Q8_0", "Q4_K_M", "F16"]
PROMPT = "The quick brown fox jumps"  # five tokens


def peer(program):
    path = PEER_DIR / program
    return str(path) if os.access(path, os.X_OK) else None


def say(text):
    print(text, file=sys.stderr, flush=True)


def model_file(kind, model):
    """The real model as it is, or requantized by the peer's own program; None without that."""
    if kind == "Q4_1":
        return model
    path = OUT / f"smollm2-{kind}.gguf"
    if not path.exists() and peer("llama-quantize"):
        part = path.with_suffix(".part")
        done = subprocess.run([peer("llama-quantize"), "--allow-requantize", model, str(part), kind],
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"llama-quantize {kind}: {done.stderr.strip().splitlines()[-1]}")
        part.rename(path)
    return str(path) if path.exists() else None


def churon_bench(path, threads, *flags):
    command = [CHURON, "bench", path, "--threads", str(threads), "--reps", str(REPS), "--json", *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(command)}")
    return json.loads(done.stdout)


def speed_rows(path, threads):
    """Prefill and decode; with both threads also at depth and sixteen together."""
    bench, batched = peer("llama-bench"), peer("llama-batched-bench")
    prefill = [f for fa in (0, 1) for f in ("--vs", f"{bench} -fa {fa}")] if bench else []
    decode = ["--vs", f"{bench} -fa 0"] if bench else []
    together = ["--vs-parallel", f"{batched} -fa off"] if batched else []
    result = churon_bench(path, threads, "--gen", "0", *prefill)
    rows = result["rows"]
    depth = ["--depth", "0,4096"] if threads > 1 else []
    rows += churon_bench(path, threads, "--prompt", "0", *depth, *decode)["rows"]
    if threads > 1:
        rows += churon_bench(path, threads, "--prompt", "0", "--gen", "0", "--edit")["rows"]
        rows += churon_bench(path, threads, "--prompt", "0", "--depth", "4096", "--kv-type", "q8")["rows"]
        rows += churon_bench(path, threads, "--prompt", "0", "--parallel", "16", *together)["rows"]
    result["rows"] = rows
    return result


def first_output(command):
    """Seconds from the start of a command to its first byte on stdout, and its peak resident bytes."""
    begun = time.perf_counter()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    first = child.stdout.read(1)
    seconds = time.perf_counter() - begun
    child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0 or not first:
        sys.exit(f"failed: {' '.join(command)}")
    return seconds, usage.ru_maxrss * 1024


def start_rows(path, threads):
    """Time to the first token of a five-token prompt, and resident memory, ours and the peer's in turns."""
    ours = [CHURON, "run", path, PROMPT, "--raw", "--temperature", "0", "--max-tokens", "2", "--threads", str(threads),
            "--ctx", "512", "--quiet"]
    theirs = peer("llama-completion") and [
        peer("llama-completion"), "-m", path, "-p", PROMPT, "-n", "2", "-t", str(threads), "-c", "512", "-no-cnv",
        "--no-display-prompt", "--temp", "0", "-fa", "off"]
    figures = {"ours": [], "peer": []}
    first_output(ours)
    for _ in range(REPS):
        figures["ours"].append(first_output(ours))
        if theirs:
            figures["peer"].append(first_output(theirs))
    rows = []
    for i, (name, scale) in enumerate((("first token, ms (less is better)", 1e3), ("resident, MB (less is better)", 1e-6))):
        mine = statistics.median(f[i] for f in figures["ours"]) * scale
        other = statistics.median(f[i] for f in figures["peer"]) * scale if theirs else None
        rows.append({"test": name, "threads": threads, "value": mine, "peer": other,
                     "ratio": mine / other if other else None})
    return rows


def prose(size):
    """English-like text, the same every time: word lengths and frequencies as in prose (Zipf), some punctuation."""
    draw = random.Random(1)
    parts = ["an", "be", "co", "de", "er", "fo", "ing", "ly", "man", "ne", "or", "per", "qui", "re", "sta", "ti", "un",
             "ver", "wa", "th"]
    common = "the of and to in a is that for it as was with be by on not he his but at are this have".split()
    words = common + ["".join(draw.choices(parts, k=draw.randint(1, 4))) for _ in range(20000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    text, length = [], 0
    while length < size:
        sentence = draw.choices(words, weights, k=draw.randint(5, 25))
        sentence[0] = sentence[0].capitalize()
        text.append(" ".join(sentence) + draw.choice([". ", ". ", ", ", "; ", "? ", ".\n\n", f" {draw.randint(1, 2000)}. "]))
        length += len(text[-1])
    return "".join(text)[:size]


def tokenizer_row(path):
    """Megabytes a second of one thread. The peer's: its whole command less the same command on one byte."""
    big, small = OUT / "prose.txt", OUT / "one.txt"
    big.write_text(prose(10_000_000))
    small.write_text("x")

    def seconds(command, file):
        begun = time.perf_counter()
        subprocess.run([*command, str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return time.perf_counter() - begun

    rate = churon_bench(path, 1, "--prompt", "0", "--gen", "0", "--text", str(big))["rows"][0]["per_s"] / 1e6
    theirs = peer("llama-tokenize") and [peer("llama-tokenize"), "-m", path, "--ids", "--log-disable", "-f"]
    other = None
    if theirs:
        other = big.stat().st_size / 1e6 / max(1e-9, seconds(theirs, big) - seconds(theirs, small))
    return {"test": "tokenizer, MB/s", "threads": 1, "value": rate, "peer": other,
            "ratio": rate / other if other else None}


NAMES = {"pp512": "prompt of 512, tokens/s", "tg128": "answer of 128, tokens/s",
         "tg128@4096": "answer after 4,096, tokens/s", "edit plain": "edit of a text, no guesses, tokens/s", "edit": "edit of a text, tokens/s",
         "tg128@4096 kv-q8": "the same, cache in 8 bits, tokens/s", "tg128x16": "16 answers together, tokens/s"}


def number(x):
    return "" if x is None else f"{x:,.0f}" if x >= 100 else f"{x:.1f}"


def table(figures):
    lines = ["| file | measured | threads | churon | of the bound | peer | ratio |", "|---|---|--:|--:|--:|--:|--:|"]

    def add(kind, name, threads, value, bound, other, ratio):
        lines.append(f"| {kind} | {name} | {threads} | {number(value)} | {bound} | {number(other)} | "
                     f"{f'{ratio:.2f}×' if ratio else ''} |")

    for kind, data in figures["files"].items():
        for row in data["rows"]:
            if "share" in row:
                add(kind, "choosing a token, share of a step", row["threads"], None, f"{row['share'] * 100:.1f} %", None,
                    None)
            else:
                add(kind, NAMES.get(row["test"], row["test"]), row["threads"], row["per_s"],
                    f"{row['bound_fraction'] * 100:.0f} %" if row["bound_fraction"] else "", row["peer_per_s"],
                    row["ratio"])
        for row in data["start"]:
            add(kind, row["test"], row["threads"], row["value"], "", row["peer"], row["ratio"])
    row = figures["tokenizer"]
    if row:
        add("any", row["test"], 1, row["value"], "", row["peer"], row["ratio"])
    return "\n".join(lines)


def main():
    model = sys.argv[1]
    OUT.mkdir(parents=True, exist_ok=True)
    machine = json.loads(subprocess.run([CHURON, "bench", "--roofline", "--json"], capture_output=True, text=True,
                                        check=True).stdout)["machine"]
    threads = sorted({1, machine["cores"]})
    if not peer("llama-bench"):
        say(f"No peer in {PEER_DIR} (tools/peers/build.sh builds it): its columns stay empty.")
    figures = {"machine": machine, "reps": REPS, "files": {}, "tokenizer": None}
    for kind in os.environ.get("FILES", " ".join(TYPES)).split():
        path = model_file(kind, model)
        if not path:
            say(f"{kind}: not measured, the peer's llama-quantize makes this file")
            continue
        data = {"rows": [], "start": []}
        for n in threads:
            say(f"{kind}, {n} thread{'s' if n > 1 else ''} …")
            result = speed_rows(path, n)
            data["digest"] = result["digest"]
            data["rows"] += result["rows"]
        data["start"] = start_rows(path, threads[-1])
        figures["files"][kind] = data
    figures["tokenizer"] = tokenizer_row(model)
    text = table(figures)
    (OUT / "figures.json").write_text(json.dumps(figures, indent=1))
    (OUT / "table.md").write_text(text + "\n")
    print(subprocess.run([CHURON, "bench", "--roofline"], capture_output=True, text=True).stdout.strip())
    print(text)


if shutil.which(CHURON) is None:
    sys.exit(f"{CHURON}: the program is not built. Run make.")
main()

"""What `tools/bench.sh serving [SCENARIO...]` prints: our server under load beside llama-server on the same file, in turns.

Scenarios: chat16, stall, prefix16, trace (needs TRACE, a CSV file with the columns TIMESTAMP, ContextTokens, GeneratedTokens);
default all that can run. Environment: PEER_DIR (as for tools/bench.sh), TRACE, ROUNDS, REQUESTS, CHURON, MODEL (default the real model),
PEER_FLAGS (added to llama-server's). The table goes to stdout, each run's figures and records to build/bench/serving-SCENARIO.*."""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
CHURON = os.environ.get("CHURON", str(TOP / "build/release/churon"))
PEER = pathlib.Path(os.environ.get("PEER_DIR", TOP / "build/peers/bin")) / "llama-server"
OUT = TOP / "build/bench"
THREADS = "2"

# llama-server divides its context among its slots: each gets what the scenario's longest request needs.
SCENARIOS = {
    "chat16": ("-np 16 -c 8192", []),
    "stall": ("-np 2 -c 8192", []),
    "prefix16": ("-np 16 -c 20480", []),
    "trace": ("-np 16 -c 32768", ["--length-scale", "0.25"]),
}


class Server:
    def __init__(self, model):
        self.process = subprocess.Popen([CHURON, "serve", model, "--threads", THREADS, "--port", "0", "--json"],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"failed: {CHURON} serve {model}")
        self.url = json.loads(line)["url"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def measure(name, model):
    flags, load = SCENARIOS[name]
    base = OUT / f"serving-{name}"
    command = [CHURON, "bench", "--scenario", name, "--json", "--records", f"{base}.jsonl", *load]
    if name == "trace":
        command += ["--trace", os.environ["TRACE"]]
    for flag in ("ROUNDS", "REQUESTS"):
        if os.environ.get(flag) and (flag, name) != ("REQUESTS", "stall"):
            command += [f"--{flag.lower()}", os.environ[flag]]
    if os.access(PEER, os.X_OK):
        peer = f"{shlex.quote(str(PEER))} -m {shlex.quote(model)} -t {THREADS} {flags} {os.environ.get('PEER_FLAGS', '')}"
        command += ["--peer", f"{peer} --port {{port}}"]
    with Server(model) as server:
        done = subprocess.run([*command, "--load", server.url], stdout=subprocess.PIPE, text=True)
    if not done.stdout:
        sys.exit(f"failed: {shlex.join(command)}")
    pathlib.Path(f"{base}.json").write_text(done.stdout)
    return json.loads(done.stdout)


# (row, path into a target's figures, digits)
ROWS = {
    "chat16": [("output tokens/s", "output_tokens_per_s", 0), ("first token, ms, median", "ttft_ms.p50", 0),
               ("between tokens, ms, p99", "itl_ms.p99", 1), ("between tokens, ms, median", "itl_ms.p50", 1)],
    "stall": [("longest gap of the chat, ms", "stall.gap_longest_ms.p50", 0), ("its gap before, ms", "stall.gap_before_p50_ms.p50", 1),
              ("first token of 3,000, ms", "stall.prefill_beside_ms.p50", 0), ("the same with no chat, ms", "stall.prefill_alone_ms.p50", 0)],
    "prefix16": [("first token, ms, median", "ttft_ms.p50", 0), ("first token, ms, last", "ttft_ms.max", 0)],
    "trace": [("requests/s at the knee", "knee.rate", 2)],
}


def at(target, path):
    for key in path.split("."):
        target = target[key]
    return target


def table(name, result):
    ours, *peers = result["targets"]
    for row, path, digits in ROWS[name]:
        a, b = at(ours, path), at(peers[0], path) if peers else None
        cells = [f"{v:,.{digits}f}" if v is not None else "" for v in (a, b)]
        ratio = f"{a / b:.2f}×" if a and b else ""
        yield f"| {name} | {row} | {cells[0]} | {cells[1]} | {ratio} |"


def main():
    model, *names = sys.argv[1:]
    unknown = [n for n in names if n not in SCENARIOS]
    if unknown:
        sys.exit(f"serving: expected scenarios of {', '.join(SCENARIOS)}, got {unknown[0]}")
    OUT.mkdir(parents=True, exist_ok=True)
    names = names or [n for n in SCENARIOS if n != "trace" or "TRACE" in os.environ]
    print("| scenario | measured | churon | llama-server | ratio |\n|---|---|--:|--:|--:|", flush=True)
    for name in names:
        for line in table(name, measure(name, os.environ.get("MODEL", model))):
            print(line, flush=True)


main()

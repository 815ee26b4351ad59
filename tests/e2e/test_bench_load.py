"""`churon bench --load` against our server, and against servers that misbehave in every way."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree

import pytest

from serve_helper import Server, tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"), "--context", "4096")


@pytest.fixture(scope="module")
def server(churon, tiny):
    with Server(churon, tiny) as s:
        yield s


@pytest.fixture
def load(churon):
    def run(url, *flags, timeout=120):
        done = subprocess.run([churon, "bench", "--load", url, *flags], capture_output=True, text=True, timeout=timeout)
        assert done.returncode in (0, 1, 2), done.stderr
        return done
    return run


def one_line(done, code):
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("churon: error: "), done.stderr
    return lines[0]


# ---- our server ------------------------------------------------------------------------------------------


def check_quantiles(q, n=None):
    order = [q[k] for k in ("min", "p50", "p90", "p95", "p99", "max")]
    assert order == sorted(order) and q["min"] <= q["mean"] <= q["max"] and all(v >= 0 for v in order), q
    assert n is None or q["n"] == n, (q, n)


def test_closed_loop(server, load):
    done = load(server.url, "--concurrency", "4", "--requests", "13", "--prompt-tokens", "50-90", "--output-tokens", "20",
                "--slo", "e2e=100s", "--seed", "7", "--json")
    assert done.returncode == 0 and not done.stderr, done.stderr
    r = json.loads(done.stdout)
    assert r["conditions"] == {**r["conditions"], "mode": "closed", "concurrency": 4, "requests": 13, "seed": 7,
                               "prompt_tokens": [50, 90], "output_tokens": [20, 20], "slo": {"e2e_ms": 100000}}
    t, = r["targets"]
    assert (t["url"], t["model"], t["server"]) == (server.url, server.model, "churon")
    assert (t["requests"], t["completed"], t["refused"], t["failed"]) == (13, 13, 0, 0)
    assert t["output_tokens"] == 13 * 20 and t["finish"] == {"length": 13}
    for key in ("ttft_ms", "tpot_ms", "e2e_ms"):
        check_quantiles(t[key], 13)
    check_quantiles(t["itl_ms"], t["events"] - 13)
    assert t["goodput"]["good"] == 13 and t["goodput"]["share"] == 1
    assert abs(t["output_tokens_per_s"] * t["wall_s"] - 260) < 1
    assert r["ratios"] is None
    server.idle()


def test_prompt_lengths_are_what_was_asked(server, load, tmp_path):
    records = tmp_path / "records.jsonl"
    done = load(server.url, "--rate", "50", "--requests", "10", "--prompt-tokens", "200", "--output-tokens", "3-9",
                "--records", str(records), "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    assert len(rows) == 10 and {r["outcome"] for r in rows} == {"ok"}
    # The tiny model's vocabulary has several tokens a word, so a length is right within a few words.
    assert all(abs(r["prompt_tokens"] - 200) < 40 for r in rows), [r["prompt_tokens"] for r in rows]
    assert {r["output_tokens"] for r in rows} <= set(range(3, 10)) and len({r["output_tokens"] for r in rows}) > 1
    for r in rows:
        assert r["scheduled_s"] <= r["sent_s"] <= r["stamps_s"][0] <= r["stamps_s"][-1] <= r["end_s"]
        assert r["stamps_s"] == sorted(r["stamps_s"])
    assert [r["scheduled_s"] for r in rows] == sorted(r["scheduled_s"] for r in rows)


def test_two_servers_take_turns(server, load):
    done = load(server.url, "--vs", server.url + "/v1/", "--scenario", "chat16", "--requests", "16", "--output-tokens", "8",
                "--rounds", "2", "--json")
    assert done.returncode == 0, done.stderr
    r = json.loads(done.stdout)
    assert r["scenario"] == "chat16" and r["conditions"]["rounds"] == 2
    assert [t["completed"] for t in r["targets"]] == [32, 32]
    a, b = r["targets"]
    assert abs(r["ratios"]["output_tokens_per_s"] - a["output_tokens_per_s"] / b["output_tokens_per_s"]) < 1e-3
    assert abs(r["ratios"]["ttft_p50"] - a["ttft_ms"]["p50"] / b["ttft_ms"]["p50"]) < 1e-3


def test_stall(server, load, tmp_path):
    records = tmp_path / "stall.jsonl"
    for _ in range(3): # the tiny model's random chat may hold whole lines back as halves of characters
        done = load(server.url, "--scenario", "stall", "--prompt-tokens", "2000", "--rounds", "2", "--json", "--records",
                    str(records))
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    s = json.loads(done.stdout)["targets"][0]["stall"]
    assert abs(s["prompt_tokens"] - 2000) < 200
    check_quantiles(s["gap_longest_ms"], 2)
    check_quantiles(s["prefill_alone_ms"], 2)
    assert s["gap_longest_ms"]["p50"] > 0 and s["prefill_ratio"] > 0
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    for row in rows:
        gaps = [(b - a) * 1e3 for a, b in zip(row["stamps_s"], row["stamps_s"][1:]) if b > row["long_sent_s"] and
                a < row["long_first_s"]]
        assert s["gap_longest_ms"]["min"] - 0.01 <= max(gaps) <= s["gap_longest_ms"]["max"] + 0.01
    server.idle()  # the chat was ended by its client


def test_shared_prefix_completions_and_text(server, load):
    done = load(server.url, "--scenario", "prefix16", "--shared-prefix", "300", "--rounds", "1", "--output-tokens", "4",
                "--completions", "--temperature", "0.5", "--body", '{"top_k": 5}')
    assert done.returncode == 0, done.stderr
    assert "16 requests, 16 at once, tokens in 300 shared + 50, out 4" in done.stdout and "first token" in done.stdout


def test_trace_and_knee(server, load, tmp_path):
    trace = tmp_path / "trace.csv"
    rows = [f"2024-01-01 00:00:{i * 0.05:09.6f},{100 + i},{10 + i % 3}" for i in range(20)]
    trace.write_bytes(("\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n" + "\r\n".join(rows) + "\r\n").encode())
    flags = ("--trace", str(trace), "--length-scale", "0.5", "--json")
    done = load(server.url, *flags, "--time-scale", "0.5")
    assert done.returncode == 0, done.stderr
    t = json.loads(done.stdout)["targets"][0]
    assert t["completed"] == 20 and t["wall_s"] >= 0.475
    done = load(server.url, *flags, "--rate", "10")
    assert json.loads(done.stdout)["targets"][0]["wall_s"] >= 1.9
    done = load(server.url, *flags, "--find-knee", "--slo", "e2e=5ms", "--duration", "0.5")
    assert done.returncode == 0, done.stderr
    knee = json.loads(done.stdout)["targets"][0]["knee"]
    rates = [s["rate"] for s in knee["steps"]]
    assert abs(rates[0] - 20) < 0.01 and len(rates) == len(set(rates))
    held = [s["rate"] for s in knee["steps"] if s["good_share"] >= 0.9]
    assert knee["rate"] == (max(held) if held else 0)
    server.idle()


def test_prompts_from_a_file(server, load, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "hello"}\n{"messages": [{"role": "user", "content": "good day"}]}\n')
    done = load(server.url, "--prompts", str(prompts), "--requests", "6", "--output-tokens", "5", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["targets"][0]["output_tokens"] == 30


def test_a_peer_is_started_and_stopped(churon, server, tiny, load):
    peer = f"'{churon}' serve '{tiny}' --port {{port}}"
    done = load(server.url, "--peer", peer, "--requests", "4", "--output-tokens", "4", "--json")
    assert done.returncode == 0, done.stderr
    url = json.loads(done.stdout)["targets"][1]["url"]
    host, port = re.match(r"http://([^:]+):(\d+)$", url).groups()
    with pytest.raises(OSError):
        socket.create_connection((host, int(port)), 1).close()
    line = one_line(load(server.url, "--peer", "sh -c 'echo nothing here; exit 3' {port}"), 1)
    assert "nothing here" in line
    assert "{port}" in one_line(load(server.url, "--peer", "true"), 1)


def test_overload_is_counted_apart(churon, tiny, load):
    with Server(churon, tiny, "--max-running", "1", "--max-queued-tokens", "200") as s:
        done = load(s.url, "--concurrency", "32", "--requests", "64", "--prompt-tokens", "100", "--output-tokens", "20", "--json")
        r = json.loads(done.stdout)["targets"][0]
        assert done.returncode == 0 and r["failed"] == 0, done.stderr
        assert r["refused"] > 0 and r["completed"] > 0 and r["refused"] + r["completed"] == 64
        assert r["refusals"]["count"] == r["refusals"]["with_retry_after"] == r["refused"]
        assert r["refusals"]["retry_after_min_s"] >= 0 and r["errors"][0]["kind"] == "refused"
        check_quantiles(r["refusals"]["ms"], r["refused"])


# ---- wrong usage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags, word", [
    (("--concurrency", "0"), "--concurrency"), (("--rate", "0"), "--rate"), (("--rate", "nan"), "--rate"),
    (("--rate", "1", "--concurrency", "2"), "--rate"), (("--prompt-tokens", "9-5"), "--prompt-tokens"),
    (("--output-tokens", "0"), "--output-tokens"), (("--slo", "ttft=5"), "--slo"), (("--find-knee",), "--slo"),
    (("--find-knee", "--slo", "ttft=1s"), "--rate"), (("--find-knee", "--slo", "ttft=1s", "--rate", "1", "--requests", "5"), "--requests"), (("--scenario", "chat17"), "--scenario"),
    (("--scenario", "trace"), "--trace"), (("--vs", "nowhere"), "--vs"), (("--time-scale", "2"), "--time-scale"),
    (("--peer", "x {port}", "--vs", "http://127.0.0.1:1"), "--peer"), (("extra",), "arguments"), (("--vsx", "1"), "--vsx"),
])
def test_wrong_usage(load, flags, word):
    assert word in one_line(load("http://127.0.0.1:9", *flags), 2)


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "ftp://127.0.0.1", "http://127.0.0.1:8080/v2", "http://a b"])
def test_wrong_url(load, url):
    assert "field --load: expected a server such as" in one_line(load(url), 2)


def test_wrong_files(server, load, tmp_path):
    path = tmp_path / "x"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,3\n1,two,3\n")
    assert f"{path}: line 3: column ContextTokens" in one_line(load(server.url, "--trace", str(path)), 1)
    assert f"{path}: line 1" in one_line(load(server.url, "--prompts", str(path)), 1)
    assert "--body" in one_line(load(server.url, "--body", "[1]"), 1)
    line = one_line(load(server.url, "--prompt-tokens", "5000"), 1)
    assert "--prompt-tokens" in line and "4096" in line


# ---- servers that misbehave ------------------------------------------------------------------------------


def event(text, **more):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None, **more}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": %d, "completion_tokens": 3}}\n\n'
END = event("c", finish_reason="length") + USAGE % 20 + b"data: [DONE]\n\n"
GOOD = event("a") + event("b") + END
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
MODELS = json.dumps({"data": [{"id": "fake"}]}).encode()


class Fake:
    """Answers /v1/models and the first requests, which measure the template, well; then calls `answer(socket)`."""

    def __init__(self, answer, good=2, models=MODELS):
        self.answer, self.good, self.models = answer, good, models
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.over = threading.Event()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        with s:
            try:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += s.recv(65536)
                head, body = head.split(b"\r\n\r\n", 1)
                n = re.search(rb"content-length: (\d+)", head.lower())
                while n and len(body) < int(n.group(1)):
                    body += s.recv(65536)
                if head.startswith(b"GET"):
                    s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(self.models) + self.models)
                elif self.good:
                    self.good -= 1
                    words = len(json.loads(body)["messages"][-1]["content"].split())
                    s.sendall(HEAD + event("a", finish_reason="length") + USAGE % (words + 5) + b"data: [DONE]\n\n")
                else:
                    self.answer(s)
            except OSError:
                pass

    def close(self):
        self.over.set()
        self.listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def stream(*parts):
    def answer(s):
        for part in parts:
            s.sendall(part)
    return answer


def status(line, body=b"", *headers):
    extra = b"".join(h + b"\r\n" for h in headers)
    return stream(b"HTTP/1.1 " + line + b"\r\n" + extra + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)


def endless_headers(s):
    s.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        s.sendall(b"X-More: " + b"y" * 1000 + b"\r\n")


def endless_line(s):
    s.sendall(HEAD + b"data: ")
    while True:
        s.sendall(b"y" * 65536)


def endless_error(s):
    s.sendall(b"HTTP/1.1 500 Oops\r\nConnection: close\r\n\r\n")
    while True:
        s.sendall(b"no end " * 1000)


def hangs(s):
    s.sendall(HEAD + event("a"))
    time.sleep(30)


def silent(s):
    time.sleep(30)


CASES = [
    ("dies before an answer", stream(), "broken", ""),
    ("dies in the middle", stream(HEAD, event("a"), b"data: {\"cho"), "broken", "event stream"),
    ("ends without finish_reason", stream(HEAD, event("a"), b"data: [DONE]\n\n"), "broken", "finish_reason"),
    ("ends without [DONE]", stream(HEAD, event("a", finish_reason="stop")), "broken", "[DONE]"),
    ("goes on after [DONE]", stream(HEAD, GOOD, event("d")), "malformed", "after [DONE]"),
    ("is no JSON", stream(HEAD, b"data: {nope}\n\n"), "malformed", "JSON"),
    ("is no event stream", stream(HEAD, b"hello\n\n"), "malformed", "event stream"),
    ("has choices that are none", stream(HEAD, b'data: {"choices": 3}\n\n'), "malformed", "choices"),
    ("has usage that is none", stream(HEAD, b'data: {"usage": {"prompt_tokens": "x"}}\n\n'), "malformed", "prompt_tokens"),
    ("is JSON instead of a stream", status(b"200 OK", b"{}", b"Content-Type: application/json"), "malformed", "Content-Type"),
    ("reports an error in the stream", stream(HEAD, event("a"), b'data: {"error": {"message": "out of\\nmemory"}}\n\n'), "failed",
     "out of?memory"),
    ("refuses with a message", status(b"400 Bad", b'{"error": {"message": "too long"}}'), "http", "400: too long"),
    ("refuses with vLLM's message", status(b"404 No", b'{"object": "error", "message": "no model"}'), "http", "404: no model"),
    ("refuses without JSON", status(b"502 Bad Gateway", b"<html>\x1b[31mbad\n"), "http", "502, no JSON error: <html>?[31mbad?"),
    ("refuses without a body", status(b"500 Oops"), "http", "500, without a body"),
    ("refuses endlessly", endless_error, "http", "500"),
    ("has endless headers", endless_headers, "broken", "headers: expected at most 65536 bytes"),
    ("has an endless line", endless_line, "malformed", "line"),
    ("speaks no HTTP", stream(b"\x00\x01\x02 what?\r\n\r\n"), "broken", ""),
]


@pytest.mark.parametrize("what, answer, kind, word", CASES, ids=[c[0] for c in CASES])
def test_faults_are_named(load, what, answer, kind, word):
    with Fake(answer) as fake:
        done = load(fake.url, "--requests", "3", "--concurrency", "2", "--json", "--timeout", "20", timeout=60)
    t = json.loads(done.stdout)["targets"][0]
    line = one_line(done, 1)
    assert t["failed"] == t["requests"] == 3 and t["completed"] == 0
    error, = t["errors"]
    assert error["kind"] == kind and word in error["example"] and word in line, (error, line)
    assert "\n" not in error["example"] and "\x1b" not in error["example"]


@pytest.mark.parametrize("answer", [hangs, silent])
def test_a_server_that_hangs_is_bounded(load, answer):
    begun = time.monotonic()
    with Fake(answer) as fake:
        done = load(fake.url, "--requests", "4", "--concurrency", "4", "--json", "--timeout", "0.5")
    assert time.monotonic() - begun < 10
    error, = json.loads(done.stdout)["targets"][0]["errors"]
    assert (error["kind"], error["count"]) == ("timeout", 4) and "0.5 s" in error["example"]
    one_line(done, 1)


def test_a_server_that_goes_away_ends_the_run(load):
    fake = Fake(None)

    def last(s):
        s.sendall(HEAD + GOOD)
        fake.close()

    fake.answer = last
    done = load(fake.url, "--requests", "10000", "--concurrency", "1", "--json")
    t = json.loads(done.stdout)["targets"][0]
    assert done.returncode == 1 and t["completed"] >= 1 and t["requests"] < 50
    assert "unreachable" in {e["kind"] for e in t["errors"]}


def test_refusals(load):
    with Fake(status(b"429 Too Many", b'{"error": {"message": "full"}}', b"Retry-After: 7")) as fake:
        done = load(fake.url, "--requests", "3", "--json")
    t = json.loads(done.stdout)["targets"][0]
    assert t["refused"] == 3 and t["failed"] == 0
    assert t["refusals"]["with_retry_after"] == 3 and t["refusals"]["retry_after_max_s"] == 7
    assert done.returncode == 1 and "3 refusals" in done.stderr  # nothing was measured


def test_without_usage_no_rate_is_claimed(load):
    with Fake(stream(HEAD, event("a"), event("b", finish_reason="stop"), b"data: [DONE]\n\n")) as fake:
        done = load(fake.url, "--requests", "2", "--json")
    t = json.loads(done.stdout)["targets"][0]
    assert done.returncode == 0 and t["without_usage"] == 2 and t["output_tokens_per_s"] is None and t["tpot_ms"]["n"] == 0


def test_chunked_in_single_bytes(load):
    def answer(s):
        s.sendall(HEAD.replace(b"Connection: close", b"Transfer-Encoding: chunked"))
        for byte in GOOD:
            s.sendall(b"1\r\n" + bytes([byte]) + b"\r\n")
        s.sendall(b"0\r\n\r\n")
    with Fake(answer) as fake:
        done = load(fake.url, "--requests", "2", "--concurrency", "2", "--json")
    t = json.loads(done.stdout)["targets"][0]
    assert t["completed"] == 2 and t["events"] == 6 and t["output_tokens"] == 6


def test_open_loop_does_not_wait_for_answers(load):
    """Each answer takes half a second; forty requests in about 0.8 s go out at their time all the same."""
    def slow(s):
        time.sleep(0.5)
        s.sendall(HEAD + GOOD)
    with Fake(slow) as fake:
        done = load(fake.url, "--rate", "50", "--requests", "40", "--seed", "1", "--json")
    t = json.loads(done.stdout)["targets"][0]
    assert done.returncode == 0 and t["completed"] == 40
    assert t["wall_s"] < 5 and t["ttft_ms"]["min"] >= 490 and t["late_ms"]["p50"] < 50, (t["wall_s"], t["late_ms"])


@pytest.mark.parametrize("models, word", [
    (b"", "expected a JSON object"), (b"[]", "expected a JSON object"), (b'{"data": []}', "field data"),
    (b'{"data": [{"id": 3}]}', "field data"), (b"{" * 100000, "deep"),
])
def test_models_that_are_none(load, models, word):
    with Fake(None, models=models) as fake:
        assert word in one_line(load(fake.url), 1)


def test_nobody_there(load):
    with socket.create_server(("127.0.0.1", 0)) as s:
        url = f"http://127.0.0.1:{s.getsockname()[1]}"
    assert "expected an OpenAI-compatible server" in one_line(load(url), 1)


# ---- around it -------------------------------------------------------------------------------------------


def test_help_has_both_halves(churon, load):
    text = subprocess.run([churon, "bench", "--help"], capture_output=True, text=True, check=True).stdout
    assert "--roofline" in text and "--find-knee" in text
    done = load("--help")
    assert done.returncode == 0 and "--find-knee" in done.stdout and "--roofline" not in done.stdout


def test_pictures(server, load, tmp_path, top):
    script = top / "tools" / "plot_load.py"

    def plot(*args):
        out = tmp_path / "out.svg"
        subprocess.run([sys.executable, script, *args, "-o", out, "--names", "ours & <theirs>"], check=True, timeout=60)
        root = xml.etree.ElementTree.parse(out).getroot()
        assert root.tag.endswith("svg") and out.stat().st_size < 40000
        return "".join(root.itertext())

    records = tmp_path / "r.jsonl"
    done = load(server.url, "--scenario", "stall", "--prompt-tokens", "1000", "--rounds", "1", "--records", str(records))
    assert done.returncode == 0, done.stderr
    assert "ours & <theirs>: longest gap" in plot("stall", records)
    done = load(server.url, "--rate", "20", "--duration", "0.4", "--output-tokens", "4", "--find-knee", "--slo", "e2e=60ms", "--json")
    assert done.returncode == 0, done.stderr
    result = tmp_path / "r.json"
    result.write_text(done.stdout)
    assert "ours & <theirs>: knee at" in plot("knee", result) or json.loads(done.stdout)["targets"][0]["knee"]["rate"] == 0

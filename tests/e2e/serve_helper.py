"""A running `churon serve` for tests: started on a free port, stopped and checked for a clean end."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

TOP = pathlib.Path(__file__).resolve().parents[2]


def tiny_model(folder, *options):
    """A random model that answers thousands of tokens a second."""
    out = pathlib.Path(folder) / "tiny.gguf"
    script = TOP / "tests" / "fixtures" / "make_gguf.py"
    subprocess.run([sys.executable, script, out, *options], check=True, cwd=script.parent)
    return str(out)


def is_sanitized(churon):
    """Built with a sanitizer: its memory says nothing, and it is several times slower."""
    data = pathlib.Path(churon).read_bytes()
    return b"__asan_init" in data or b"__tsan_init" in data


class Server:
    def __init__(self, churon, model, *options, env=None):
        self.sanitized = is_sanitized(churon)
        self.err = tempfile.TemporaryFile("w+")
        command = [churon, "serve", model, "--port", "0", "--json", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.err, text=True,
                                        env={**os.environ, **(env or {})})
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(30)
            raise RuntimeError(f"no server: {self.stderr()}")
        self.ready = json.loads(line)
        self.url, self.model = self.ready["url"], self.ready["model"]
        self.host, self.port = re.match(r"https?://([^:/]+):(\d+)", self.url).groups()
        self.port = int(self.port)

    def stderr(self):
        self.err.seek(0)
        return self.err.read()

    def stop(self, how=signal.SIGTERM, within=60):
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(within)
        self.process.stdout.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            try:
                code = self.stop()
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
            if kind is None:
                assert code == 0, f"exit {code}: {self.stderr()}"
        text = self.stderr()
        assert "Sanitizer" not in text and "runtime error" not in text, text

    def request(self, path, body=None, headers=None, method=None, timeout=300):
        """(status, headers, bytes); body: an object is sent as JSON, bytes as they are."""
        data = json.dumps(body).encode() if body is not None and not isinstance(body, bytes) else body
        h = {"Content-Type": "application/json"} if data is not None else {}
        r = urllib.request.Request(self.url + path, data, {**h, **(headers or {})}, method=method)
        try:
            with urllib.request.urlopen(r, timeout=timeout) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as e:
            with e:
                return e.code, e.headers, e.read()

    def json(self, path, body=None, **more):
        status, headers, data = self.request(path, body, **more)
        return status, json.loads(data)

    def chat(self, text, **fields):
        body = {"model": self.model, "messages": [{"role": "user", "content": text}], **fields}
        status, answer = self.json("/v1/chat/completions", body)
        assert status == 200, answer
        return answer

    def socket(self, timeout=30, receive_buffer=None):
        s = socket.socket()
        if receive_buffer:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        s.settimeout(timeout)
        s.connect((self.host, self.port))
        return s

    def metrics(self):
        """{name or name{labels}: value}, with the model's own label left out."""
        status, _, data = self.request("/metrics")
        assert status == 200
        out = {}
        for line in data.decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = re.sub(r'model_name="(?:[^"\\]|\\.)*",?', "", name).replace("{}", "")
                out[name] = float(value)
        return out

    def grew(self, before, by):
        """Did the process grow by more than `by` bytes since the metrics `before`?"""
        name = "process_resident_memory_bytes"
        return not self.sanitized and self.metrics()[name] - before[name] > by

    def idle(self, within=30):
        """Waits until nothing runs or waits; returns the metrics then."""
        end = time.monotonic() + within
        while True:
            m = self.metrics()
            busy = m["vllm:num_requests_running"] + m["vllm:num_requests_waiting"]
            # The scrape itself is one open request.
            if busy == 0 and m["churon_http_requests_open"] == 1 and m["churon_kv_pages"] == m["churon_kv_pages_free"]:
                return m
            assert time.monotonic() < end, {k: v for k, v in m.items() if "bucket" not in k}
            time.sleep(0.02)


def post_bytes(path, body, *headers):
    head = [f"POST {path} HTTP/1.1", "Host: test", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def read_all(s):
    """Until the server closes."""
    out = b""
    try:
        while chunk := s.recv(65536):
            out += chunk
    except ConnectionResetError:
        pass
    return out


def read_response(s, rest=b""):
    """One response with Content-Length: (status, headers, body, what follows)."""
    while b"\r\n\r\n" not in rest:
        chunk = s.recv(65536)
        assert chunk, f"closed after {rest!r}"
        rest += chunk
    head, rest = rest.split(b"\r\n\r\n", 1)
    lines = head.decode().split("\r\n")
    headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines[1:])}
    n = int(headers["content-length"])
    while len(rest) < n:
        chunk = s.recv(65536)
        assert chunk
        rest += chunk
    return int(lines[0].split()[1]), headers, rest[:n], rest[n:]

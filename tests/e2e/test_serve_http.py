"""Raw sockets against the server's HTTP layer: what no client library would send."""

import json
import socket
import time

import pytest

from serve_helper import Server, post_bytes, read_all, read_response, tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"), "--context", "4096")


@pytest.fixture(scope="module")
def server(churon, tiny):
    with Server(churon, tiny, "--max-body", "256K") as s:
        yield s


@pytest.fixture(autouse=True)
def still_serving(request):
    yield
    if "server" in request.fixturenames:
        s = request.getfixturevalue("server")
        assert s.request("/health")[0] == 200
        s.idle()


def exchange(server, data, timeout=10):
    with server.socket(timeout) as s:
        s.sendall(data)
        return read_all(s)


def status_of(answer):
    assert answer.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")), answer[:100]
    return int(answer.split()[1])


BODY = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CLOSE = b"Connection: close\r\n"


@pytest.mark.parametrize("data, codes", [
    (b"\r\n\r\n\r\n", ()),
    (b"GET\r\n\r\n", (400,)),
    (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", (400,)),  # no Host
    (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", (400,)),
    (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", (400, 505)),
    (b"GET / HTTP/1.1\r\nHost: a\r\nno colon here\r\n\r\n", (400,)),
    (b"GET / HTTP/1.1\r\nHost: a\r\nname : value\r\n\r\n", (400,)),
    (b"GET / HTTP/1.1\r\nHost: a\r\nx: a\x01b\r\n\r\n", (400,)),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)) + b"\r\n\r\n", (400,)),
    (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", (400,)),
    (HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde", (400,)),
    (HEAD + b"Content-Length: +5\r\n\r\nabcde", (400,)),
    (HEAD + b"Content-Length: -5\r\n\r\nabcde", (400,)),
    (HEAD + b"Content-Length: 0x5\r\n\r\nabcde", (400,)),
    (HEAD + b"Content-Length: 99999999999999999999\r\n\r\nabcde", ()),
    (HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (400,)),
    (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", (400,)),
    (HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (400,)),
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n0\r\n\r\n", (400, 413)),
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabc\r\n0\r\n\r\n", (400, 413)),
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc\r\n0\r\n\r\n", (400, 413)),
    (b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", (400, 414, 431)),
    (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"x: " + b"a" * 40000 + b"\r\n\r\n", (400, 431)),
    (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"x: a\r\n" * 200 + b"\r\n", (431,)),
])
def test_malformed_heads(server, data, codes):
    with server.socket(10) as s:
        try:
            s.sendall(data)
            if not codes:
                s.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # refused and closed before all was sent
        answer = read_all(s)
    if codes:
        assert status_of(answer) in codes, answer[:200]
        assert answer.count(b"HTTP/1.1 ") == 1, "what follows a bad head must not be read as a request"


def test_a_smuggled_request_is_not_answered(server):
    inner = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    for head in (b"Content-Length: 0\r\nContent-Length: %d\r\n", b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n",
                 b"Transfer-Encoding: identity\r\nX: %d\r\n", b"Content-Length : %d\r\n"):
        answer = exchange(server, HEAD + head % len(inner) + b"\r\n" + (b"0\r\n\r\n" if b"chunked" in head else b"") + inner)
        assert answer.count(b"HTTP/1.1 ") == 1 and status_of(answer) == 400, answer


def refused_at_once(s, head, body=b""):
    """413 before the declared body was sent, and nothing after it."""
    start = time.monotonic()
    s.sendall(head + body)
    status, headers, answer, rest = read_response(s)
    assert status == 413 and time.monotonic() - start < 2 and headers["connection"] == "close"
    error = json.loads(answer)["error"]
    assert str(256 << 10) in error["message"] and error["type"] == "invalid_request_error"
    assert rest + read_all(s) == b""


def test_a_declared_length_over_the_limit_is_refused_at_once(server):
    before = server.metrics().get('churon_http_responses_total{code="413"}', 0)
    for more, body in ((b"Content-Length: 300000\r\n", b""), (b"Content-Length: 300000\r\n", b"a" * 1000),
                       (b"content-length:10000000000\r\n", b""), (b"Content-Length: 99999999999\r\nExpect: 100-continue\r\n", b"")):
        with server.socket() as s:
            refused_at_once(s, HEAD + more + b"\r\n", body)
    with server.socket() as s:  # the second request of a connection, in pieces
        s.sendall(post_bytes("/v1/completions", BODY))
        assert read_response(s)[0] == 200
        s.sendall(HEAD[:20])
        time.sleep(0.05)
        refused_at_once(s, HEAD[20:] + b"Content-Length: 300000\r\n\r\n")
    with server.socket() as s:  # behind one whose answer is still computed: the reply to that comes first
        slow = json.dumps({"prompt": "a", "max_tokens": 200, "ignore_eos": True}).encode()
        s.sendall(post_bytes("/v1/completions", slow) + HEAD + b"Content-Length: 300000\r\n\r\n" + b"a" * 300000)
        status, _, body, rest = read_response(s)
        assert status == 200 and json.loads(body)["usage"]["completion_tokens"] == 200
        assert status_of(rest or s.recv(4096)) == 413
    with server.socket() as s:  # at the limit is not over it
        body = b'{"prompt":"a","max_tokens":1,"user":"' + b"a" * ((256 << 10) - 39) + b'"}'
        s.sendall(post_bytes("/v1/completions", body))
        assert len(body) == 256 << 10 and read_response(s)[0] == 200
    assert server.metrics()['churon_http_responses_total{code="413"}'] >= before + 5


def test_body_limits(server):
    big = b'{"prompt":"' + b"a" * 300000 + b'"}'
    with server.socket() as s:
        s.sendall(post_bytes("/v1/completions", big))
        assert status_of(read_all(s)) == 413
    with server.socket() as s:  # refused before it is sent
        s.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 10000000000\r\n\r\n")
        time.sleep(0.2)
    with server.socket() as s:  # chunked, without a length
        try:
            s.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(40):
                s.sendall(b"4000\r\n" + b"a" * 0x4000 + b"\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = read_all(s)
        assert not answer or status_of(answer) == 413
    with server.socket() as s:
        s.sendall(HEAD + CLOSE + b"Transfer-Encoding: chunked\r\n\r\n")
        for byte in BODY:
            s.sendall(b"1\r\n" + bytes([byte]) + b"\r\n")
        s.sendall(b"0\r\n\r\n")
        assert status_of(read_all(s)) == 200


def test_pipelining_and_keep_alive(server):
    with server.socket() as s:
        s.sendall(post_bytes("/v1/completions", BODY) * 5 + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        rest = b""
        for _ in range(5):
            status, _, body, rest = read_response(s, rest)
            assert status == 200 and json.loads(body)["usage"]["completion_tokens"] == 1
        status, _, body, rest = read_response(s, rest)
        assert status == 200 and json.loads(body) == {"status": "ok"} and rest == b""


def test_bytes_while_the_answer_is_computed(server):
    slow = json.dumps({"prompt": "a", "max_tokens": 1500, "ignore_eos": True}).encode()
    with server.socket() as s:
        s.sendall(post_bytes("/v1/completions", slow))
        for _ in range(20):
            time.sleep(0.01)
            s.sendall(b"G")  # a pipelined byte ended other servers
        status, _, body, _ = read_response(s)
        assert status == 200 and json.loads(body)["usage"]["completion_tokens"] == 1500
        s.sendall(b"ET /health HTTP/1.1\r\nHost: x\r\n\r\n")  # GGGG…ET is no method
        assert status_of(s.recv(4096)) in (400, 405, 501)


def test_flood_while_the_answer_streams(server):
    slow = json.dumps({"prompt": "a", "max_tokens": 1500, "ignore_eos": True, "stream": True}).encode()
    with server.socket() as s:
        s.sendall(post_bytes("/v1/completions", slow))
        s.settimeout(0.5)
        sent, before = 0, server.metrics()
        try:
            for _ in range(2000):
                sent += s.send(b"x" * 65536)
                if sent > 60 << 20:
                    break
        except (TimeoutError, BrokenPipeError, ConnectionResetError):
            pass
        assert not server.grew(before, 30 << 20)


def test_half_close_counts_as_leaving(server):
    slow = json.dumps({"prompt": "a", "max_tokens": 4000, "ignore_eos": True}).encode()
    before = server.metrics()['churon_requests_cancelled_total{reason="disconnect"}']
    with server.socket() as s:
        s.sendall(post_bytes("/v1/completions", slow))
        s.shutdown(socket.SHUT_WR)
        read_all(s)
    assert server.metrics()['churon_requests_cancelled_total{reason="disconnect"}'] == before + 1


def test_http_1_0(server):
    answer = exchange(server, b"GET /health HTTP/1.0\r\n\r\n")
    assert status_of(answer) == 200
    stream = json.dumps({"prompt": "a", "max_tokens": 3, "stream": True}).encode()
    answer = exchange(server, b"POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\nContent-Type: application/json\r\n"
                      b"Content-Length: %d\r\n\r\n" % len(stream) + stream)
    head, body = answer.split(b"\r\n\r\n", 1)
    assert b"chunked" not in head.lower() and body.endswith(b"data: [DONE]\n\n")


def test_methods_and_paths(server):
    for method, path, allow in (("DELETE", "/v1/models", "GET, HEAD"), ("GET", "/v1/completions", "POST"),
                                ("POST", "/health", "GET, HEAD"), ("OPTIONS", "/v1/chat/completions", "POST"),
                                ("PATCH", "/", "GET, HEAD")):
        status, headers, body = server.request(path, b"" if method == "POST" else None, method=method)
        assert status == 405 and headers["Allow"] == allow and "method" in json.loads(body)["error"]["message"]
    for target in (b"//health", b"///", b"//", b"/health/", b"http://x/nothing"):
        assert status_of(exchange(server, b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")) == 404, target
    for target in (b"/health?a#b", b"http://x/health", b"/%68ealth", b"http://x"):
        assert status_of(exchange(server, b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")) == 200, target
    assert status_of(exchange(server, b"BREW / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")) in (405, 501)
    status, _, body = server.request("/v1/engines%22%0a")
    assert status == 404 and "\n" not in json.loads(body)["error"]["message"]
    with server.socket() as s:
        s.sendall(b"HEAD /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head, body = read_all(s).split(b"\r\n\r\n", 1)
        assert body == b"" and int(head.lower().split(b"content-length: ")[1].split()[0]) > 100
    status, _, body = server.request("/v1/completions", BODY, headers={"Content-Type": "text/plain"})
    assert status == 415, "a page of another origin can send text without asking"
    assert server.request("/v1/completions?x=1", BODY)[0] == 200


def test_bad_bodies(server):
    deep = b"[" * 100000
    for body in (b"", b"{", b"null", b"\xff\xfe", b'{"prompt":"\xff"}', b'{"prompt":"a","prompt":"b"}', deep, b'{"prompt":NaN}',
                 b'{"prompt":"a","temperature":NaN}', b'{"prompt":"a","temperature":Infinity}', b'{"prompt":"a","x":' + deep,
                 b'{"prompt":"\\ud800"}', b'{"prompt":[1e400]}', b'{"prompt":[' + b"1," * 100000 + b"1]}", b"\0" * 1000,
                 b'{"prompt":{"a":1}}', b'{"prompt":"a","max_tokens":"5"}', b'{"prompt":"a","stop":[[]]}'):
        status, answer = server.json("/v1/completions", body)
        assert status == 400 and set(answer["error"]) == {"message", "type", "param", "code"}, (body[:50], answer)
        assert answer["error"]["type"] == "invalid_request_error" and answer["error"]["message"]


def test_nul_and_odd_text_in_prompts(server):
    for text in ("a\0b", "\u202e\ufeff", "\U0010ffff", "", "<|im_end|>" * 50):
        status, answer = server.json("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": 2})
        assert status == 200, answer


def test_slow_heads_are_dropped(churon, tiny):
    # The deadline is 30 seconds for a whole request, however busily it drips.
    with Server(churon, tiny) as server:
        with server.socket(60) as s:
            start = time.monotonic()
            s.sendall(b"GET / HTTP/1.1\r\n")
            try:
                while time.monotonic() - start < 50:
                    s.sendall(b"x-a: b\r\n")
                    time.sleep(0.5)
            except (BrokenPipeError, ConnectionResetError):
                pass
            assert 25 < time.monotonic() - start < 40


def test_connection_limit(churon, tiny):
    with Server(churon, tiny, "--max-connections", "8") as server:
        held = [server.socket() for _ in range(8)]
        time.sleep(0.3)
        status, headers, body = server.request("/health")
        assert status == 503 and headers["Retry-After"] == "1" and "connections" in json.loads(body)["error"]["message"]
        for s in held:
            s.close()
        time.sleep(0.3)
        assert server.request("/health")[0] == 200
        many = [server.socket(5) for _ in range(150)]  # beyond the margin they wait in the kernel
        for s in many:
            s.close()
        time.sleep(0.5)
        assert server.request("/health")[0] == 200


def test_keys(churon, tiny, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# comment\nalpha\n\nbeta-2\n")
    with Server(churon, tiny, "--keys", str(keys)) as server:
        for header in ({}, {"Authorization": "Bearer gamma"}, {"Authorization": "alpha"}, {"Authorization": "Bearer alph"},
                       {"Authorization": "Bearer # comment"}, {"Authorization": "Bearer "}):
            for path, body in (("/v1/models", None), ("/v1/models/x", None), ("/v1/completions", BODY), ("/tokenize", b'{"prompt":"a"}'),
                               ("/detokenize", b'{"tokens":[1]}'), ("/v1/chat/completions", b"{}")):
                status, headers, answer = server.request(path, body, headers=header)
                assert status == 401 and headers["WWW-Authenticate"] == "Bearer"
                assert json.loads(answer)["error"]["code"] == "invalid_api_key"
        for key in ("alpha", "beta-2"):
            assert server.request("/v1/completions", BODY, headers={"Authorization": "Bearer " + key})[0] == 200
        for path in ("/", "/health", "/ready", "/version", "/metrics"):
            assert server.request(path)[0] == 200
    keys.write_text("# nothing\n")
    with pytest.raises(RuntimeError, match="at least one key"):
        Server(churon, tiny, "--keys", str(keys))
    keys.write_text("alpha weight=0\n")
    with pytest.raises(RuntimeError, match=":1: weight: expected") as e:
        Server(churon, tiny, "--keys", str(keys))
    assert "alpha" not in str(e.value)


def test_the_key_says_who_asks(churon, tiny, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("alpha tenant=red weight=2\nbeta tenant=red\ngamma\n")
    with Server(churon, tiny, "--keys", str(keys)) as server:
        for key in ("alpha", "beta", "gamma"):
            assert server.request("/v1/completions", BODY, headers={"Authorization": "Bearer " + key})[0] == 200
        m = server.idle()
        assert m['churon_tenant_requests_total{tenant="red"}'] == 2 and m['churon_tenant_requests_total{tenant="#3"}'] == 1
        assert m['churon_tenant_generation_tokens_total{tenant="red"}'] == 2
        assert m['churon_tenant_time_to_first_token_seconds_count{tenant="#3"}'] == 1
        text = server.request("/metrics")[2].decode()
        assert not [k for k in ("alpha", "beta", "gamma") if k in text]
        for claim in ("red", "#3", "blue"):
            status, answer = server.json("/v1/completions", BODY, headers={"Authorization": "Bearer gamma", "X-Churon-Tenant": claim})
            assert status == 400 and answer["error"]["param"] == "X-Churon-Tenant"


def test_without_keys_the_header_says_who_asks(churon, tiny):
    with Server(churon, tiny, "--kv-memory", "2M") as server:
        for claim in ("", "a b", "#1", "a" * 64, "\u00e9"):
            status, answer = server.json("/v1/completions", BODY, headers={"X-Churon-Tenant": claim})
            assert status == 400 and answer["error"]["param"] == "X-Churon-Tenant"
        for i in range(100):  # the pages of the KV cache are touched as they are first used
            assert server.request("/v1/completions", BODY, headers={"X-Churon-Tenant": f"t{i}"})[0] == 200
        base = server.idle()
        for i in range(100, 300):  # made-up names share one label after the first
            assert server.request("/v1/completions", BODY, headers={"X-Churon-Tenant": f"t{i}"})[0] == 200
        assert server.request("/v1/completions", BODY)[0] == 200
        m = server.idle()
        names = [k for k in m if k.startswith("churon_tenant_requests_total")]
        assert len(names) == 33 and m['churon_tenant_requests_total{tenant="t0"}'] == 1
        assert sum(m[k] for k in names) == 301 and m['churon_tenant_requests_total{tenant="other"}'] == 269
        assert not server.grew(base, 8 << 20)


def test_page(server):
    status, headers, body = server.request("/")
    assert status == 200 and headers["Content-Type"].startswith("text/html")
    csp = headers["Content-Security-Policy"]
    assert "default-src 'none'" in csp and "connect-src 'self'" in csp and headers["X-Content-Type-Options"] == "nosniff"
    page = body.decode()
    assert 'fetch("load")' in page and all(f"now.{name}" in page for name in ("running", "waiting_tokens", "kv_pages_cached", "uptime_s"))
    assert "innerHTML" not in page and "insertAdjacentHTML" not in page and "document.write" not in page
    outside = [u for u in ("http://", "https://") for u in page.split(u)[1:] if not u.startswith("www.w3.org")]
    assert not [u for u in outside if not u.startswith("\\/")], "the page needs no network"

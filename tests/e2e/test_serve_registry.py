"""`churon serve NAME`: bundles of the registry: the version before where the newest fails, labels, rights to call, signatures."""

import json
import os
import subprocess
import sys

import pytest
from serve_helper import TOP, Server
from test_serve_bundles import SETOSA, case, predict, write_bundle


@pytest.fixture
def home(churon, tmp_path):
    """flowers:1 is good, flowers:2 has a golden case that fails; canary is 1."""
    env = {"CHURON_HOME": str(tmp_path / "home")}

    def registry(*words, ok=True):
        done = subprocess.run([churon, "registry", *map(str, words)], env={**os.environ, **env}, capture_output=True, text=True, timeout=60)
        assert (done.returncode == 0) == ok, done.stderr
    registry("add", write_bundle(tmp_path / "good", 7, golden=[case()]), "--name", "flowers", "--owner", "olga")
    registry("add", write_bundle(tmp_path / "bad", 8, golden=[case("virginica")]), "--name", "flowers")
    registry("alias", "flowers", "canary", "1")
    return env, registry


def test_the_version_before_goes_on(churon, home):
    env, registry = home
    with Server(churon, "flowers", env=env) as s:
        assert "note: flowers: version 2 is not served: golden case 'a flower'" in s.stderr()
        status, head, answer = predict(s, {"instances": [SETOSA], "provenance": True}, "flowers")
        assert status == 200 and head["X-Churon-Version"] == "1" and answer["provenance"]["registered"] == "flowers:1"
        assert answer["provenance"]["version"] == "7"
        assert predict(s, {"instances": [SETOSA]}, "flowers", "/versions/2:predict")[0] == 503
        registry("gc", "--keep-last", "1")
        assert predict(s, {"instances": [SETOSA]}, "flowers")[0] == 200  # it is held while it is served
        registry("show", "flowers:1")
    done = subprocess.run([churon, "serve", "flowers:2", "--port", "0"], env={**os.environ, **env}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "golden case 'a flower'" in done.stderr


def test_replay_of_a_stored_version(churon, home, tmp_path):
    (tmp_path / "record").mkdir()
    body = {"inputs": [{"name": "measures", "datatype": "FP32", "shape": [1, 4], "data": SETOSA}], "parameters": {"provenance": True}}
    with Server(churon, "flowers:1", "--record", str(tmp_path / "record"), env=home[0]) as s:
        status, head, answer = s.request("/v2/models/flowers/infer", body)
        assert status == 200 and b'"model_version":"1"' in answer
    done = subprocess.run([churon, "replay", "--request", head["X-Churon-Request-Id"], "--record", tmp_path / "record"], capture_output=True,
                          env={**os.environ, **home[0]}, timeout=60)
    assert done.returncode == 0 and done.stdout == answer + b"\n", done.stderr


def test_an_alias_is_a_label(churon, home):
    with Server(churon, "flowers@canary", env=home[0]) as s:
        assert predict(s, {"instances": [SETOSA]}, "flowers", "/labels/canary:predict")[0] == 200
        assert predict(s, {"instances": [SETOSA]}, "flowers", "/labels/champion:predict")[0] == 404
        assert s.json("/v1/models/flowers/labels/canary")[0] == 200


def test_who_may_call(churon, home, tmp_path):
    env, registry = home
    registry("grant", "flowers", "blue", "call", "--by", "olga")
    registry("grant", "flowers", "red", "read", "--by", "olga")  # reading is not calling
    done = subprocess.run([churon, "serve", "flowers:1", "--port", "0"], env={**os.environ, **env}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "field --keys: expected a file of keys, as not everybody may call 'flowers'" in done.stderr
    (tmp_path / "keys").write_text("k-red tenant=red\nk-blue tenant=blue\nk-olga tenant=olga\n")
    with Server(churon, "flowers:1", str(TOP / "examples" / "iris.onnx"), "--keys", str(tmp_path / "keys"), env=env) as s:
        def ask(key, name="flowers", path=":predict", body=True):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            return s.request(f"/v1/models/{name}{path}", {"instances": [SETOSA]} if body else None, headers)[0]
        assert [ask(k) for k in ("k-blue", "k-olga", "k-red", "none", None)] == [200, 200, 403, 401, 401]
        assert [ask(k, "iris") for k in ("k-blue", "k-red", None)] == [200, 200, 401]
        assert [ask(k, path="", body=False) for k in ("k-blue", "k-red")] == [200, 403]
        assert [ask(k, path="/metadata", body=False) for k in ("k-blue", "k-red")] == [200, 403]
        body = {"inputs": [{"name": "measures", "datatype": "FP32", "shape": [1, 4], "data": SETOSA}]}
        assert s.request("/v2/models/flowers/infer", body, {"Authorization": "Bearer k-red"})[0] == 403


def test_signatures(churon, home, tmp_path):
    env, registry = home
    registry("keygen", tmp_path / "release.pem")
    registry("keygen", tmp_path / "other.pem")
    command = [churon, "serve", "flowers:1", "--port", "0", "--require-signature"]

    def refused(keys):
        done = subprocess.run([*command, keys], env={**os.environ, **env}, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
        return done.stderr
    assert "sign" in refused(tmp_path / "release.pem.pub")
    registry("sign", "flowers:1", "--key", tmp_path / "release.pem")
    refused(tmp_path / "other.pem.pub")
    with Server(churon, "flowers:1", "--require-signature", str(tmp_path / "release.pem.pub"), env=env) as s:
        assert predict(s, {"instances": [SETOSA]}, "flowers")[0] == 200


def test_names_from_python(home, churon):
    code = "import churon; p = churon.Pipeline('flowers@canary'); print(p.version, p.run({'measures': %r})['species'])" % SETOSA
    library = os.path.join(os.path.dirname(churon), "libchuron.so")
    if b"__asan_init" in open(library, "rb").read():
        pytest.skip("a library with sanitizers does not load into this interpreter")
    env = {**os.environ, **home[0], "CHURON_LIBRARY": library, "PYTHONPATH": str(TOP / "python")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["7", "setosa"], done.stderr

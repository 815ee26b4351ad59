"""`churon pack`: reproducible bytes, the digest that sha256sum gives, what is refused, a full disk, the time to open."""

import hashlib
import json
import os
import pathlib
import resource
import signal
import subprocess
import time

import pytest


@pytest.fixture
def run(churon, tmp_path):
    def go(*args, code=0, **more):
        env = {**os.environ, "CHURON_HOME": str(tmp_path / "home")}
        done = subprocess.run([churon, "pack", *map(str, args)], capture_output=True, text=True, env=env, cwd=tmp_path, **more)
        assert done.returncode == code, done.stderr
        if code:
            assert len(done.stderr.splitlines()) == 1 and done.stdout == ""
        return done

    return go


@pytest.fixture
def bundle(tmp_path):
    folder = tmp_path / "b"
    (folder / "sub" / "deeper").mkdir(parents=True)
    (folder / "bundle.yaml").write_text("name: x\n")
    (folder / "model.onnx").write_bytes(os.urandom(100_000))
    (folder / "sub" / "labels.txt").write_text("".join(f"label {i}\n" for i in range(5000)))
    (folder / "sub" / "deeper" / "한글 name.txt").write_text("x")
    (folder / "empty").touch()
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("left out")
    return folder


def digest_of(folder):
    files = sorted((p.relative_to(folder).as_posix().encode(), p) for p in folder.rglob("*") if p.is_file())
    files = [(n, p) for n, p in files if not any(step.startswith(b".") for step in n.split(b"/"))]
    lines = b"".join(hashlib.sha256(p.read_bytes()).hexdigest().encode() + b"  " + n + b"\n" for n, p in files)
    return hashlib.sha256(lines).hexdigest()


def test_same_content_same_bytes(run, bundle, tmp_path):
    got = json.loads(run("b", "-o", "1.churon", "--json").stdout)
    assert got["digest"] == digest_of(bundle)
    assert [e["path"] for e in got["entries"]] == sorted(e["path"] for e in got["entries"])
    for p in bundle.rglob("*"):
        os.utime(p, (1, 1))
    (bundle / "model.onnx").chmod(0o600)
    run("b", "-o", "2.churon")
    run("b", "-o", "z.churon", "--zstd")
    run("b", "-o", "z2.churon", "--zstd")
    one, two, z = ((tmp_path / f"{n}.churon").read_bytes() for n in ("1", "2", "z"))
    assert one == two and len(z) < len(one) and z == (tmp_path / "z2.churon").read_bytes()
    assert json.loads(run("--list", "z.churon", "--json").stdout)["digest"] == got["digest"]
    at = one.index((bundle / "model.onnx").read_bytes())
    assert at % 4096 == 0 and (bundle / "model.onnx").read_bytes() in z


def test_extract_gives_it_back(run, bundle, tmp_path):
    run("b", "-o", "z.churon", "--zstd")
    run("--extract", "out/deep", "z.churon")
    assert digest_of(tmp_path / "out" / "deep") == digest_of(bundle)
    assert "empty folder" in run("--extract", "out/deep", "z.churon", code=1).stderr


def test_what_is_refused(run, bundle, tmp_path):
    assert "output" in run("b", code=2).stderr
    assert "nowhere" in run("nowhere", "-o", "x.churon", code=1).stderr
    (bundle / "link").symlink_to("/etc/passwd")
    assert "symbolic link" in run("b", "-o", "x.churon", code=1).stderr
    (bundle / "link").unlink()
    (bundle / "EMPTY").touch()
    assert "more than case" in run("b", "-o", "x.churon", code=1).stderr
    (bundle / "EMPTY").unlink()
    assert list(tmp_path.glob("x.churon*")) == []
    run("b", "-o", "x.churon")
    whole = (tmp_path / "x.churon").read_bytes()
    for name, bad in (("short", whole[:-1]), ("long", whole + b"\0"), ("other", b"PK\3\4" + whole[4:])):
        (tmp_path / f"{name}.churon").write_bytes(bad)
        assert f"{name}.churon" in run("--list", f"{name}.churon", code=1).stderr
    flipped = bytearray(whole)
    flipped[whole.index(b"label 77\n")] ^= 1
    (tmp_path / "flipped.churon").write_bytes(flipped)
    assert "sub/labels.txt" in run("--check", "flipped.churon", code=1).stderr
    assert "sub/labels.txt" in run("--extract", "o", "flipped.churon", code=1).stderr
    assert not (tmp_path / "o").exists()


def test_full_disk(run, bundle, tmp_path):
    run("b", "-o", "x.churon")
    before = (tmp_path / "x.churon").read_bytes()
    (bundle / "more").write_bytes(b"x")

    def small():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    assert "cannot write" in run("b", "-o", "x.churon", code=1, preexec_fn=small).stderr
    assert (tmp_path / "x.churon").read_bytes() == before and list(tmp_path.glob("*.part")) == []


def test_opening_is_verified_once(run, bundle, tmp_path):
    """A pack of 100 MB: what was verified is not read again. Compared with listing, which reads only the table."""
    (bundle / "model.onnx").write_bytes(os.urandom(1 << 20) * 100)
    run("b", "-o", "x.churon")
    time.sleep(2.1)  # a file that changed within the last second is not remembered

    def seconds(*args):
        times = []
        for _ in range(5):
            start = time.perf_counter()
            run(*args)
            times.append(time.perf_counter() - start)
        return min(times)

    first = time.perf_counter()
    run("--check", "x.churon")
    first = time.perf_counter() - first
    listing = seconds("--list", "x.churon")
    check = seconds("--check", "x.churon")
    assert check > 2 * listing, (check, listing)  # --check reads everything, always
    assert list((tmp_path / "home" / "verified").iterdir()) != []

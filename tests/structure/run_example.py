"""Runs a program of examples/: `run_example.py PROGRAM`. It must end with status 0 and say what it should; without a
model it must refuse in one line. Those of language models run with the real one: exit 77 (skip) if it cannot be had.
classify runs with examples/iris.onnx, four measures standing for an image; score with a bundle around it."""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "tools"))

import real_model  # noqa: E402


def refuses(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0 and len(done.stderr.strip().splitlines()) == 1:
        return True
    print(f"{' '.join(map(str, command[1:]))}: expected one line and a failure, got {done.returncode}: {done.stderr}")
    return False


def classify(program):
    iris = TOP / "examples" / "iris.onnx"
    with tempfile.TemporaryDirectory() as folder:
        image = pathlib.Path(folder) / "image.f32"
        image.write_bytes(struct.pack("<4f", 5.1, 3.5, 1.4, 0.2))
        done = subprocess.run([program, iris, image, "2"], capture_output=True, text=True, timeout=60)
        lines = [line.split() for line in done.stdout.splitlines()]
        scores = [float(line[1]) for line in lines if len(line) == 3]
        if done.returncode != 0 or len(scores) != 2 or lines[0][0] != "0" or not scores[0] > 0.9 > scores[1]:
            print(f"expected two classes, 0 first, and status 0, got status {done.returncode}: {done.stdout}{done.stderr}")
            return 1
        image.write_bytes(b"short")
        return 0 if refuses(program, iris, image) and refuses(program, "/nowhere/model.onnx", image) else 1


def score(program):
    with tempfile.TemporaryDirectory() as folder:
        bundle = pathlib.Path(folder)
        (bundle / "iris.onnx").write_bytes((TOP / "examples" / "iris.onnx").read_bytes())
        (bundle / "bundle.yaml").write_text("churon: 1\nname: iris\nversion: 2\nmodel: {file: iris.onnx}\n"
                                            "inputs:\n  measures: {type: tensor, dtype: float32, shape: [4]}\n")
        records = ['{"measures": [5.1, 3.5, 1.4, 0.2]}', '{"measures": [5.1, 3.5, "1.4", 0.2]}', "{"]
        done = subprocess.run([program, bundle], input="\n".join(records) + "\n", capture_output=True, text=True, timeout=60)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        good = (done.returncode == 0 and len(answers) == 3 and "error" not in answers[0] and
                "field measures: element 2" in answers[1]["error"] and "json: expected" in answers[2]["error"] and
                "<- measures: float32 [4]" in done.stderr)
        if not good:
            print(f"expected an answer and two refusals, got status {done.returncode}: {done.stdout}{done.stderr}")
            return 1
    return 0 if refuses(program, "/nowhere/bundle") else 1


def main():
    program = sys.argv[1]
    if pathlib.Path(program).name == "example_score":
        return score(program)
    if pathlib.Path(program).name == "example_classify":
        return classify(program)
    if not refuses(program, "/nowhere/model.gguf", "Hello"):
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

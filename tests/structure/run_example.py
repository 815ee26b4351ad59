"""Runs a program of examples/: `run_example.py PROGRAM`. It must end with status 0 and say what it should; without a
model it must refuse in one line. Those of language models run with the real one: exit 77 (skip) if it cannot be had.
classify runs with examples/iris.onnx, four measures standing for an image; score with a bundle around it; ocr_detect with
the bundle rapidocr. `run_example.py http CHURON`: the scripts of examples/http against a server of the bundles open-nsfw and rapidocr."""

import json
import os
import pathlib
import re
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


PAGE = ["The quick brown fox jumps", "over the lazy dog. 0123456789"]


def bundle(name, program=None):
    """Its folder with its models, or None: they cannot be had."""
    env = {**os.environ, **({"CHURON": program} if program else {})}
    done = subprocess.run([TOP / "tools" / "bundles.sh", name], capture_output=True, text=True, timeout=280, env=env)
    if done.returncode == 77:
        print(done.stdout.strip())
        return None
    if done.returncode != 0:
        raise SystemExit(f"tools/bundles.sh {name}: {done.stderr}")
    return TOP / "build" / "bundles" / name


def reads_page(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    lines = [re.match(r"((\d+,\d+ ?){4}) +([01]\.\d{3})  (.*)", line) for line in done.stdout.splitlines()]
    if done.returncode == 0 and len(lines) > 4 and all(lines) and [m[4] for m in lines[:2]] == PAGE:
        x, y = map(int, lines[0][1].split()[0].split(","))
        if abs(x - 30) <= 2 and abs(y - 28) <= 2 and float(lines[0][3]) > 0.9:
            return True
    print(f"{' '.join(map(str, command))}: expected the lines of the page, got status {done.returncode}: {done.stdout}{done.stderr}")
    return False


def ocr_detect(program):
    if not refuses(program, "/nowhere/bundle", "/nowhere/page.png"):
        return 1
    folder = bundle("rapidocr", str(pathlib.Path(program).parents[1] / "churon"))
    if not folder:
        return 77
    good = reads_page([program, folder, folder / "inputs" / "page.png"]) and refuses(program, folder, folder / "bundle.yaml")
    return 0 if good and refuses(program, folder, "/nowhere/page.png") else 1


def http(program):
    scripts = TOP / "examples" / "http"
    if not refuses("bash", scripts / "classify.sh", "m", "/nowhere/photo.jpg") or not refuses("python3", scripts / "ocr.py", "m", "/nowhere/p.png"):
        return 1
    classifier, reader = bundle("open-nsfw", program), bundle("rapidocr", program)
    if not classifier or not reader:
        return 77
    sys.path.insert(0, str(TOP / "tests" / "e2e"))
    from serve_helper import Server
    photo, page = classifier / "inputs" / "photo.jpg", reader / "inputs" / "page.png"
    with Server(program, str(classifier), str(reader)) as server:
        command = ["bash", scripts / "classify.sh", "open-nsfw", photo, server.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode != 0 or json.loads(done.stdout)["predictions"][0]["label"] != "safe":
            print(f"classify.sh: expected the label safe and status 0, got status {done.returncode}: {done.stdout}{done.stderr}")
            return 1
        good = reads_page(["python3", scripts / "ocr.py", "rapidocr", page, server.url])
        good = good and refuses("bash", scripts / "classify.sh", "nobody", photo, server.url)
        return 0 if good and refuses("python3", scripts / "ocr.py", "rapidocr", classifier / "bundle.yaml", server.url) else 1


def main():
    program = sys.argv[1]
    if program == "http":
        return http(sys.argv[2])
    if pathlib.Path(program).name == "example_ocr_detect":
        return ocr_detect(program)
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

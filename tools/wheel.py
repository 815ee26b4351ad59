"""Writes the Python package as a wheel: `wheel.py LIBRARY FOLDER`. The library lies inside; what it needs of the system
(its NEEDED entries) does not, so the tag is linux_MACHINE and not manylinux. The same content gives the same bytes."""

import base64
import hashlib
import pathlib
import platform
import re
import sys
import zipfile

TOP = pathlib.Path(__file__).resolve().parents[1]
WHEN = (1980, 1, 1, 0, 0, 0)  # the earliest that the format knows


def version():
    header = (TOP / "include" / "churon.h").read_text()
    return re.search(r'^#define CHURON_VERSION "([^"]+)"', header, re.M).group(1)


def contents(library, info, tag):
    package = TOP / "python" / "churon"
    for path in sorted(package.rglob("*")):
        if path.suffix == ".py" or path.name == "py.typed":
            yield f"churon/{path.relative_to(package).as_posix()}", path.read_bytes()
    yield "churon/libchuron.so", library.read_bytes()
    yield f"{info}/METADATA", (f"Metadata-Version: 2.1\nName: churon\nVersion: {version()}\n"
                               "Summary: From a model file to its answer: pipelines and ONNX graphs\n"
                               "Requires-Python: >=3.9\nRequires-Dist: numpy>=1.22\nDescription-Content-Type: text/markdown\n\n"
                               ).encode() + (TOP / "python" / "README.md").read_bytes()
    yield f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: churon\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    yield f"{info}/licenses/LICENSE", (TOP / "LICENSE").read_bytes()


def main():
    library, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    tag, info = f"py3-none-linux_{platform.machine()}", f"churon-{version()}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"churon-{version()}-{tag}.whl"
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        def add(name, data):
            entry = zipfile.ZipInfo(name, WHEN)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            wheel.writestr(entry, data)
        for name, data in contents(library, info, tag):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
            add(name, data)
        add(f"{info}/RECORD", "".join([*record, f"{info}/RECORD,,\n"]))
    print(path)


main()

"""Makes golden.jsonl, inputs/ and the tables of labels, from the package magika itself.

    pip install magika==1.0.3
    python make_golden.py
"""

import base64
import gzip
import io
import pathlib
import struct
import sys
import tarfile
import zipfile
import zlib

import numpy as np
from magika import Magika
from magika.types import Seekable

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import golden  # noqa: E402


def png():
    rows = b"".join(b"\0" + bytes((x * 5 + y * 3) & 255 for x in range(96)) for y in range(32))
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b""))


def archive(kind):
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr(zipfile.ZipInfo("notes.txt"), "a line\n" * 200)
            z.writestr(zipfile.ZipInfo("data/table.csv"), "a,b\n1,2\n")
    else:
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as t:
            info = tarfile.TarInfo("notes.txt")
            info.size = 1400
            t.addfile(info, io.BytesIO(b"a line\n" * 200))
    return out.getvalue()


def noise(n, seed):
    out, x = bytearray(), seed
    for _ in range(n):
        x = (x * 6364136223846793005 + 1442695040888963407) & (1 << 64) - 1
        out.append(x >> 56)
    return bytes(out)


C = "#include <stdio.h>\n\nint main(int argc, char **argv) {\n    for (int i = 0; i < argc; i++) printf(\"%s\\n\", argv[i]);\n    return 0;\n}\n"
PYTHON = "import sys\n\n\ndef area(w, h):\n    return w * h\n\n\nif __name__ == \"__main__\":\n    print(area(*map(float, sys.argv[1:3])))\n"
MARKDOWN = "# A title\n\nSome *text* with a [link](page.html).\n\n- one\n- two\n\n```\ncode\n```\n" * 3
CSV = "id,name,price\n" + "".join(f"{i},item {i},{i * 1.25:.2f}\n" for i in range(60))

# What the tests go through; the first ones become golden cases with files of their own.
FILES = {
    "c": C.encode(),
    "python": PYTHON.encode(),
    "markdown": MARKDOWN.encode(),
    "csv": CSV.encode(),
    "json": b'{"rows": [' + b", ".join(b'{"id": %d, "ok": true}' % i for i in range(40)) + b"]}",
    "html": b"<!doctype html>\n<html><head><title>x</title></head>\n<body><p>one</p></body></html>\n",
    "xml": b"<?xml version=\"1.0\"?>\n<catalog><book id=\"1\"><title>x</title></book></catalog>\n",
    "png": png(),
    "zip": archive("zip"),
    "tar": archive("tar"),
    "gzip": gzip.compress(CSV.encode(), mtime=0),
    "wav": b"RIFF" + struct.pack("<I", 2036) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16) +
           b"data" + struct.pack("<I", 2000) + b"\1\0" * 1000,
    "noise": noise(6000, 1),
    "letters": bytes(97 + b % 26 for b in noise(3000, 2)),
    "shell": b"#!/bin/sh\nset -e\nfor f in *.txt; do\n    wc -l \"$f\"\ndone\n",
    "yaml": b"name: x\nsteps:\n  - run: a\n  - run: b\n    with:\n      key: value\n",
    "sql": b"select a, count(*) from t where b > 3 group by a order by 2 desc;\n",
    "empty": b"",
    "seven_letters": b"letters",
    "seven_bytes": b"\xff\xfe\x00\x01\x02\x03\x04",
    "blank": b" \t\n\v\f\r" * 3000,
    "blank_then_bytes": b" " * 5000 + b"\xff",
    "blank_around": b"\n\n   " + C.encode() + b"\n \n\t ",
    "cut_character": b" " * 4095 + "é".encode() + b"x" * 10,
    "word": b"hello, world and all that is in it",
    "dictionary": b"the quick brown fox jumps over the lazy dog. " * 40,
    "long_c": (C * 60).encode(),
    "block_sized": (PYTHON * 60).encode()[:4096],
    "one_more": (PYTHON * 60).encode()[:4097],
    "korean": "안녕하세요. 오늘은 날씨가 좋습니다.\n".encode() * 20,
    "utf16": "a line of text\r\n".encode("utf-16") * 30,
}
GOLDEN = ["c", "python", "markdown", "csv", "png", "zip", "wav", "noise", "letters", "sql", "empty", "seven_letters",
          "seven_bytes", "blank", "cut_character", "dictionary", "block_sized"]
TRACED = ("python", "sql")
SURE = "python"


def answer(m, content):
    p = m.identify_bytes(content).prediction
    return {"type": str(p.output.label), "mime_type": p.output.mime_type, "model_type": str(p.dl.label), "score": p.score}


def trace(m, name, content):
    c = m._model_config
    f = Magika._extract_features_from_seekable(Seekable(io.BytesIO(content)), c.beg_size, c.mid_size, c.end_size, c.padding_token,
                                               c.block_size, c.use_inputs_at_offsets)
    p = m.identify_bytes(content).prediction
    asked = "choose type #4/choose type #3/"
    label = {}
    if name == SURE:
        [probabilities] = m._get_raw_predictions([(pathlib.Path("-"), f)])
        scores = [{"label": x, "score": v} for x, v in zip(m._target_labels_space, probabilities)]
        label = {asked + "label model_type": [{"model_type": str(p.dl.label), "scores": scores, "score": p.score}]}
    return label | {"length size": len(content), "byte_window bytes": np.array(f.beg + f.end, np.int32), "pick eighth": f.beg[7],
            asked + "lookup least": [c.thresholds.get(p.dl.label, c.medium_confidence_threshold)],
            asked + "choose type #2": [str(p.output.label)], "lookup mime_type": p.output.mime_type}


def tables(m):
    c, infos = m._model_config, m._cts_infos
    labels = m._target_labels_space
    kept = [str(c.overwrite_map.get(x, x)) for x in labels]
    types = sorted({*map(str, m.get_output_content_types())})
    return {"labels.txt": labels,
            "thresholds.txt": [c.thresholds.get(x, c.medium_confidence_threshold) for x in labels],
            "kept.txt": kept,
            "generic.txt": ["txt" if infos[x].is_text else "unknown" for x in kept],
            "content_types.txt": types,
            "mime_types.txt": [infos[x].mime_type for x in types]}


def main():
    m = Magika()
    for name, lines in tables(m).items():
        (HERE / name).write_text("".join(f"{line}\n" for line in lines))
    (HERE / "inputs").mkdir(exist_ok=True)
    cases = []
    for name in GOLDEN:
        content = FILES[name]
        given = {"b64": base64.b64encode(content).decode()}
        if len(content) > 500:
            (HERE / "inputs" / f"{name}.bin").write_bytes(content)
            given = {"file": f"inputs/{name}.bin"}
        cases.append({"name": name, "in": {"content": given}, "out": answer(m, content)})
        if name in TRACED:
            cases[-1]["trace"] = trace(m, name, content)
    golden.write(HERE, cases)


if __name__ == "__main__":
    main()

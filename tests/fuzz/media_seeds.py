#!/usr/bin/env python3
"""Writes the seeds of fuzz_image and fuzz_audio: tiny files of every format and kind."""

import io
import pathlib
import sys

import numpy as np
import soundfile
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "oracle"))

import test_media_image as images  # noqa: E402


def image_seeds():
    rgb = images.picture(13, 9)
    image, gray = Image.fromarray(rgb), Image.fromarray(rgb[:, :, 0])
    rgba = Image.fromarray(np.concatenate([rgb, rgb[:, :, :1]], -1))
    palette = image.quantize(13)
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "turned.jpg", images.saved(image, "JPEG", exif=exif.tobytes())
    yield "progressive.jpg", images.saved(image, "JPEG", progressive=True)
    yield "gray.jpg", images.saved(gray, "JPEG")
    yield "cmyk.jpg", images.saved(image.convert("CMYK"), "JPEG")
    yield "rgba.png", images.saved(rgba, "PNG", exif=exif.tobytes())
    yield "palette.png", images.saved(palette, "PNG", transparency=bytes(range(9)), bits=4)
    yield "interlaced.png", images.png(rgb, 2, interlaced=True)
    yield "deep.png", images.png(rgb.astype(np.uint16) * 257, 2)
    yield "lossy.webp", images.saved(rgba, "WEBP", quality=50, exif=exif.tobytes())
    yield "lossless.webp", images.saved(image, "WEBP", lossless=True)
    yield "frames.webp", images.saved(rgba, "WEBP", save_all=True, append_images=[rgba.rotate(90)], lossless=True)
    yield "plain.gif", images.saved(palette, "GIF", transparency=3)
    yield "interlaced.gif", images.saved(palette, "GIF", interlace=1)
    yield "rgb.bmp", images.saved(image, "BMP")
    yield "palette.bmp", images.saved(palette, "BMP")
    yield "bit.bmp", images.saved(gray.convert("1"), "BMP")
    yield "masks.bmp", images.bmp(3, 2, 16, b"ab" * 8, 3, masks=b"\0\xf8\0\0\xe0\7\0\0\x1f\0\0\0")
    yield "rle8.bmp", images.bmp(5, 2, 8, b"\5\7\0\0\0\3\1\2\3\0\2\x09\0\1", 1, palette=bytes(range(64)) * 16)
    yield "rle4.bmp", images.bmp(5, 2, 4, b"\5\x12\0\0\0\5\x12\x34\x50\0\0\1", 2, palette=bytes(range(64)))


def audio_seeds():
    x = (np.sin(np.arange(1200) / 9) / 2).astype(np.float32)
    for name, kind, subtype in (("pcm.wav", "WAV", "PCM_16"), ("float.wav", "WAV", "FLOAT"), ("adpcm.wav", "WAV", "MS_ADPCM"), ("a.flac", "FLAC", "PCM_16"),
                                ("a.ogg", "OGG", "VORBIS"), ("a.mp3", "MP3", "MPEG_LAYER_III"), ("a.aiff", "AIFF", "PCM_24"), ("a.au", "AU", "ULAW")):
        out = io.BytesIO()
        soundfile.write(out, np.stack([x, -x], -1), 16000, format=kind, subtype=subtype)
        yield name, out.getvalue()
    out = io.BytesIO()
    soundfile.write(out, np.zeros((0, 8)), 8000, format="WAV")
    yield "nothing.wav", out.getvalue()


for target, seeds in (("image", image_seeds), ("audio", audio_seeds)):
    folder = HERE / "seeds" / target
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (folder / name).write_bytes(data)

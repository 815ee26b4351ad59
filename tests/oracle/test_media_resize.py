"""Resizing against Pillow (equal), OpenCV (one level), torch's formula in NumPy (f32), and what is done to pixels besides:
windows, warps, turns, padding, normalization."""

import cv2
import numpy as np
import pytest
from media_tool import Refused, Tool
from PIL import Image

from test_media_image import picture

PILLOW = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "area": 4, "hamming": 5}
OPENCV = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC, "area": cv2.INTER_AREA,
          "lanczos": cv2.INTER_LANCZOS4}
SIZES = [((64, 48), (32, 24)), ((67, 53), (20, 31)), ((67, 53), (19, 53)), ((67, 53), (67, 11)), ((20, 31), (67, 90)), ((1, 1), (5, 7)),
         ((5, 7), (1, 1)), ((100, 3), (7, 9)), ((3, 500), (2, 33)), ((40, 40), (40, 40)), ((90, 60), (30, 20)), ((90, 60), (30, 41))]


@pytest.fixture(scope="module")
def tool(churon, tmp_path_factory):
    return Tool(churon, tmp_path_factory.mktemp("media"))


@pytest.fixture(params=["ref", "avx2", "avx512"])
def cpu(request, monkeypatch, tool):
    monkeypatch.setenv("CHURON_CPU", request.param)
    if tool.run("resize", "x", "y", "height=1").stderr.startswith("unsupported"):
        pytest.skip("skip: this processor lacks it")
    return request.param


def as_image(x):
    return Image.fromarray(x[:, :, 0] if x.shape[2] == 1 else x)


def pillow(x, size, filter, box=None):
    """Channels for themselves: Pillow has RGBA go through premultiplied alpha."""
    planes = [np.asarray(Image.fromarray(np.ascontiguousarray(x[:, :, c])).resize(size[::-1], PILLOW[filter])) for c in range(x.shape[2])]
    return np.stack(planes, -1)


@pytest.mark.parametrize("filter", PILLOW)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_u8_equals_pillow(tool, cpu, filter, channels):
    for seed, (a, b) in enumerate(SIZES):
        x = picture(a[1], a[0], channels, seed)
        got = tool.array("resize", x, height=b[0], width=b[1], rule="pillow", filter=filter)
        np.testing.assert_array_equal(got, pillow(x, b, filter), err_msg=f"{a} {b}")


@pytest.mark.parametrize("filter", PILLOW)
def test_f32_equals_pillow(tool, filter):
    rng = np.random.default_rng(1)
    for a, b in SIZES:
        x = rng.normal(size=(*a, 1)).astype(np.float32)
        got = tool.array("resize", x, height=b[0], width=b[1], rule="pillow", filter=filter)
        np.testing.assert_allclose(got, pillow(x, b, filter), rtol=0, atol=1e-6)


@pytest.mark.parametrize("filter", OPENCV)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_u8_is_opencvs_to_one_level(tool, filter, channels):
    for seed, (a, b) in enumerate(SIZES):
        x = picture(a[1], a[0], channels, seed)
        got = tool.array("resize", x, height=b[0], width=b[1], rule="opencv", filter=filter).astype(int)
        want = cv2.resize(x, b[::-1], interpolation=OPENCV[filter]).reshape(got.shape)
        assert np.abs(got - want).max() <= 1, (a, b)
        assert (got != want).mean() < 0.1, (a, b)


@pytest.mark.parametrize("filter", OPENCV)
def test_f32_is_opencvs(tool, filter):
    rng = np.random.default_rng(2)
    for a, b in SIZES:
        x = rng.normal(size=(*a, 3)).astype(np.float32)
        got = tool.array("resize", x, height=b[0], width=b[1], rule="opencv", filter=filter)
        np.testing.assert_allclose(got, cv2.resize(x, b[::-1], interpolation=OPENCV[filter]), rtol=0, atol=1e-4)


def torch_weights(n, out, filter):
    """torch.nn.functional.interpolate(antialias=True)'s weights, by its published formula (torch itself is a heavy oracle)."""
    support_of, a = {"bilinear": 1.0, "bicubic": 2.0}[filter], -0.5
    scale = n / out
    wide = max(scale, 1.0)
    w = np.zeros((out, n))
    for i in range(out):
        center, support = scale * (i + 0.5), support_of * wide
        low, high = max(int(center - support + 0.5), 0), min(int(center + support + 0.5), n)
        x = np.abs((np.arange(low, high) - center + 0.5) / wide)
        if filter == "bilinear":
            v = np.clip(1 - x, 0, None)
        else:
            near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
            v = np.where(x < 1, near, np.where(x < 2, far, 0))
        w[i, low:high] = v / v.sum()
    return w


@pytest.mark.parametrize("filter", ["bilinear", "bicubic"])
def test_torchvisions_antialias_formula(tool, filter):
    rng = np.random.default_rng(3)
    for a, b in SIZES:
        x = rng.random(size=(*a, 3)).astype(np.float32)
        want = np.einsum("yh,hwc,xw->yxc", torch_weights(a[0], b[0], filter), x.astype(float), torch_weights(a[1], b[1], filter))
        got = tool.array("resize", x, height=b[0], width=b[1], rule="torchvision", filter=filter)
        np.testing.assert_allclose(got, want, rtol=0, atol=3e-6)
        bytes_ = (x * 255).astype(np.uint8)
        want = np.einsum("yh,hwc,xw->yxc", torch_weights(a[0], b[0], filter), bytes_.astype(float), torch_weights(a[1], b[1], filter))
        got = tool.array("resize", bytes_, height=b[0], width=b[1], rule="torchvision", filter=filter).astype(int)
        assert np.abs(got - np.clip(np.rint(want), 0, 255)).max() <= 1


@pytest.mark.parametrize("rule,filter", [("pillow", f) for f in PILLOW] + [("opencv", f) for f in OPENCV] + [("torchvision", "bicubic")])
def test_a_window_has_the_pixels_of_the_whole(tool, rule, filter):
    for dtype in (np.uint8, np.float32):
        for shape, size in (((97, 83), (61, 40)), ((97, 83), (97, 40)), ((97, 83), (61, 83)), ((20, 20), (61, 40)), ((97, 83), (97, 83))):
            x = picture(shape[1], shape[0]).astype(dtype)
            whole = tool.array("resize", x, height=size[0], width=size[1], rule=rule, filter=filter)
            part = tool.array("resize", x, height=size[0], width=size[1], rule=rule, filter=filter, window=[7, 5, 30, 21])
            np.testing.assert_array_equal(part, whole[7:37, 5:26])


def test_pillow_widest(tool, cpu):
    x = picture(30000, 3)
    np.testing.assert_array_equal(tool.array("resize", x, height=3, width=7, rule="pillow", filter="lanczos"), pillow(x, (3, 7), "lanczos"))


def test_pillow_12_goes_across_first(tool):
    x = picture(53, 67)
    across = pillow(x, (67, 31), "bicubic")
    np.testing.assert_array_equal(tool.array("resize", x, height=20, width=31, rule="pillow12", filter="bicubic"), pillow(across, (20, 31), "bicubic"))
    assert (tool.array("resize", x, height=20, width=31, rule="pillow", filter="bicubic") != pillow(across, (20, 31), "bicubic")).any()


def test_the_order_of_pillows_passes(tool):
    """Random sizes: which way Pillow goes first shows in the rounding."""
    rng = np.random.default_rng(9)
    for _ in range(60):
        a, b = rng.integers(1, 90, 2), rng.integers(1, 90, 2)
        x = rng.integers(0, 256, (*a, 1), np.uint8)
        got = tool.array("resize", x, height=b[0], width=b[1], rule="pillow", filter="bicubic")
        np.testing.assert_array_equal(got, pillow(x, tuple(int(v) for v in b), "bicubic"), err_msg=f"{a} {b}")


def test_what_is_refused(tool):
    x = picture(8, 8)
    for more, text in (({"height": 0}, "size: expected sides of 1"), ({"filter": "hamming", "rule": "opencv"}, "expected a filter of the rule opencv"),
                       ({"window": [4, 0, 5, 8]}, "window: expected one inside 8 x 8")):
        with pytest.raises(Refused, match=text):
            tool.array("resize", x, **{"height": 8, "width": 8, "rule": "pillow", "filter": "bilinear", **more})
    with pytest.raises(Refused, match="expected uint8 or float32"):
        tool.array("resize", x.astype(np.int64), height=8, width=8, rule="pillow", filter="bilinear")


def test_sizes_of_fits(tool):
    def fit(kind, a, b):
        return tuple(map(int, tool.run("fit", f"fit={kind}", f"in={a[0]},{a[1]}", f"to={b[0]},{b[1]}").stdout.split()))

    assert fit(1, (333, 500), (256, 0)) == (256, int(256 * 500 / 333)) == (256, 384)
    assert fit(1, (500, 333), (256, 0)) == (int(256 * 500 / 333), 256)
    assert fit(2, (333, 500), (256, 0)) == (int(256 * 333 / 500), 256)
    assert fit(3, (1080, 1920), (640, 640)) == (360, 640)
    assert fit(3, (1920, 1080), (640, 640)) == (640, 360)
    assert fit(4, (1080, 1920), (640, 640)) == (640, 1138)
    assert fit(3, (1, 10000), (10, 10)) == (1, 10)


@pytest.mark.parametrize("filter", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("border", ["constant", "replicate"])
def test_perspective_is_opencvs(tool, filter, border):
    x = picture(80, 60)
    corners = np.float32([[12, 8], [70, 3], [75, 55], [5, 50]])
    to = np.float32([[0, 0], [47, 0], [47, 31], [0, 31]])
    m = cv2.getPerspectiveTransform(corners, to)
    for inside in (m, cv2.getPerspectiveTransform(corners * 1.4 - 10, to)):
        mode = cv2.BORDER_CONSTANT if border == "constant" else cv2.BORDER_REPLICATE
        want = cv2.warpPerspective(x, inside, (48, 32), flags=OPENCV[filter], borderMode=mode, borderValue=(10, 20, 30)).astype(int)
        got = tool.array("warp", x, height=32, width=48, filter=filter, border=border, value=[10, 20, 30], m=list(inside.ravel())).astype(int)
        off = np.abs(got - want)
        assert off.max() <= 1 and (off > 0).mean() < 0.01


def test_turns_and_padding(tool):
    x = picture(9, 5)
    for q in range(4):
        np.testing.assert_array_equal(tool.array("rotate", x, quarters=q), np.rot90(x, -q))
    want = np.full((5 + 3, 9 + 7, 3), (1, 2, 3), np.uint8)
    want[1:6, 3:12] = x
    np.testing.assert_array_equal(tool.array("pad", x, edges=[1, 2, 3, 4], value=[1, 2, 3]), want)


def test_normalization_has_numpys_bits(tool):
    x = picture(31, 17)
    mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    for pixels in (x, x.astype(np.float32)):
        want = (pixels.astype(np.float32) / np.float32(255) - mean) / std
        got = tool.array("normalize", pixels, divide=255, mean=list(mean), deviation=list(std))
        np.testing.assert_array_equal(got, want)
        got = tool.array("normalize", pixels, divide=255, mean=list(mean), deviation=list(std), chw=1, reverse=1)
        want = (pixels[:, :, ::-1].astype(np.float32) / np.float32(255) - mean) / std
        np.testing.assert_array_equal(got, want.transpose(2, 0, 1))
    with pytest.raises(Refused, match="deviation"):
        tool.array("normalize", x, deviation=[0, 1, 1])

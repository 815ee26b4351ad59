"""Models of one node with random inputs, as ONNX Runtime answers them, in a suite folder for one `churon verify`.

    cases = Cases(seed)
    cases.case("softmax_11", "Softmax", 11, [cases.f32(2, 3)], axis=1)
    rows, refused = cases.run(churon, folder)
"""

import json
import subprocess

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper


class Cases:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.specs = {}

    def f32(self, *shape, scale=1.0):
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def positive(self, *shape):
        return np.abs(self.f32(*shape)) + np.float32(0.1)

    def u8(self, *shape):
        return self.rng.integers(0, 256, shape).astype(np.uint8)

    def i8(self, *shape):
        return self.rng.integers(-128, 128, shape).astype(np.int8)

    def i32(self, low, high, *shape):
        return self.rng.integers(low, high, shape).astype(np.int32)

    def case(self, name, op, version, inputs, outputs=1, domain="", constant=(), behind=False, beside=None, **attributes):
        """inputs: arrays, or None where absent; outputs: their number, or a string of x (wanted), f (wanted, and said to be float) and
        - (not wanted).
        constant: numbers of inputs that are initializers. behind: input 0 is what another node made, so that the
        operator may write over it. beside: version of ai.onnx where that is not the operator's domain."""
        assert name not in self.specs, name
        inputs = [None if x is None else np.asarray(x) for x in inputs]
        outputs = "x" * outputs if isinstance(outputs, int) else outputs
        self.specs[name] = (op, domain, version, inputs, outputs, tuple(constant), behind, beside, attributes)

    def ms(self, name, op, inputs, outputs=1, **attributes):
        self.case(name, op, 1, inputs, outputs, domain="com.microsoft", **attributes)

    def write(self, folder, name):
        model, feeds = model_of(*self.specs[name])
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        write_case(folder / name, model, feeds, [o.name for o in session.get_outputs()], session.run(None, feeds))

    def run(self, churon, folder, rtol="1e-3", atol="2e-5"):
        """What became of each case by name, and the cases that ONNX Runtime does not answer with its reasons."""
        refused = {}
        for name in self.specs:
            try:
                self.write(folder, name)
            except Exception as e:  # noqa: BLE001: ONNX Runtime lacks it: nothing to compare with
                refused[name] = str(e).splitlines()[0][:300]
        command = [churon, "verify", "--onnx-suite", str(folder), "--rtol", rtol, "--atol", atol, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
        assert done.returncode in (0, 1), done.stderr
        return {c["name"]: c for c in json.loads(done.stdout)["cases"]}, refused


def model_of(op, domain, version, inputs, outputs, constant, behind, beside, attributes):
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    out = ["" if wanted == "-" else f"y{i}" for i, wanted in enumerate(outputs)]
    nodes = [helper.make_node(op, ["made"] + names[1:] if behind else names, out, domain=domain, **attributes)]
    if behind:
        nodes.insert(0, helper.make_node("Neg", [names[0]], ["made"]))
    feeds, inits, infos = {}, [], []
    for i, (name, x) in enumerate(zip(names, inputs)):
        if x is None:
            continue
        if i in constant:
            inits.append(numpy_helper.from_array(x, name))
        else:
            infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape))
            feeds[name] = x
    outs = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) if w == "f" else helper.make_empty_tensor_value_info(o)
            for o, w in zip(out, outputs) if o]  # fmt: skip
    graph = helper.make_graph(nodes, "g", infos, outs, inits)
    opsets = [helper.make_opsetid("", beside or (version if domain == "" else 17))]
    if domain:
        opsets.append(helper.make_opsetid(domain, version))
    return helper.make_model(graph, opset_imports=opsets, ir_version=8 if opsets[0].version < 21 else 10), feeds


def write_case(folder, model, feeds, names, results):
    del model.graph.output[:]
    for name, r in zip(names, results):
        model.graph.output.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(r.dtype), r.shape))
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    for i, x in enumerate(feeds.values()):
        (data / f"input_{i}.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    for i, y in enumerate(results):
        (data / f"output_{i}.pb").write_bytes(numpy_helper.from_array(y).SerializeToString())

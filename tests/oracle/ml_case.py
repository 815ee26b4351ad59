"""A fitted estimator as a folder that `churon verify --data` understands: the exported model, inputs, and the
outputs that the library itself gives."""

import json
import subprocess

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def maps(rows):
    """A sequence of maps from labels to f32."""
    out = onnx.SequenceProto(elem_type=onnx.SequenceProto.MAP)
    for row in rows:
        m = out.map_values.add()
        if isinstance(next(iter(row)), str):
            m.key_type = TensorProto.STRING
            m.string_keys.extend(k.encode() for k in row)
        else:
            m.key_type = TensorProto.INT64
            m.keys.extend(row)
        m.values.elem_type = onnx.SequenceProto.TENSOR
        m.values.tensor_values.extend(numpy_helper.from_array(np.float32(v)) for v in row.values())
    return out


def proto(array):
    if isinstance(array, list) and array and isinstance(array[0], dict):
        return maps(array)
    array = np.asarray(array)
    if array.dtype.kind in "OUS":
        flat = [str(s).encode() for s in array.ravel()]
        return TensorProto(data_type=TensorProto.STRING, dims=array.shape, string_data=flat)
    return numpy_helper.from_array(np.ascontiguousarray(array))


def write(folder, model, inputs, outputs):
    data = folder / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    for what, arrays in (("input", inputs), ("output", outputs)):
        for i, a in enumerate(arrays):
            (data / f"{what}_{i}.pb").write_bytes(proto(a).SerializeToString())


def verify(churon, folder, atol=1e-5, rtol=0.0, env=None):
    """None, or what differs."""
    command = [churon, "verify", "--data", folder, "--atol", str(atol), "--rtol", str(rtol), "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    return None if done.returncode == 0 else (done.stdout + done.stderr)[:600]


def node_model(op, inputs, outputs, domain="ai.onnx.ml", version=3, opset=20, **attrs):
    """A model of one node. inputs, outputs: (name, element type)."""
    node = helper.make_node(op, [n for n, _ in inputs], [n for n, _ in outputs], domain=domain, **attrs)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(n, t, None) for n, t in inputs],
                              [helper.make_tensor_value_info(n, t, None) for n, t in outputs])
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, version))
    return helper.make_model(graph, opset_imports=imports, ir_version=10)

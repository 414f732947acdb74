"""Evaluations/s of OpenVINO and onnxruntime on residual towers with random weights.

Reads requests from standard input and answers each on standard output, one JSON object a line. Every thread that was
asked for is a process with an engine of its own that computes on one thread; all begin at one barrier.

Usage: peers.py THREADS SEED
"""

import functools
import importlib.metadata
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time

HEAD_CHANNELS = 32
VALUE_HIDDEN = 64
# Duration of the warm-up, as a share of the measured time.
WARM_UP = 0.25
# Random positions on which integers are calibrated.
CALIBRATION = 64
# The longest time that the processes wait for each other.
PATIENCE_SECONDS = 240


class Graph:
    """An ONNX graph in the making. Batch norms are folded: a convolution has a bias."""

    def __init__(self, seed):
        import numpy

        self.rng = numpy.random.default_rng(seed)
        self.nodes = []
        self.weights = []

    def node(self, kind, *inputs, name=None, **attributes):
        from onnx import helper

        name = name or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def weight(self, shape, fan_in):
        """Uniform within sqrt(3 / fan-in): the variance that a residual tower keeps."""
        from onnx import numpy_helper

        name = f"weight_{len(self.weights)}"
        values = (2 * self.rng.random(shape, dtype="float32") - 1) * (3 / fan_in) ** 0.5
        self.weights.append(numpy_helper.from_array(values.astype("float32"), name))
        return name

    def convolution(self, x, inputs, outputs, side):
        weight = self.weight((outputs, inputs, side, side), inputs * side * side)
        bias = self.weight((outputs,), 100)
        return self.node("Conv", x, weight, bias, kernel_shape=[side, side], pads=[side // 2] * 4)

    def linear(self, x, inputs, outputs, name=None):
        weight = self.weight((outputs, inputs), inputs)
        return self.node("Gemm", x, weight, self.weight((outputs,), 100), name=name, transB=1)

    def relu(self, x):
        return self.node("Relu", x)


@functools.lru_cache(maxsize=1)
def model(seed, blocks, channels, planes, height, width, actions):
    """Stem, residual blocks, two heads; any batch size. The bytes of the ONNX file."""
    from onnx import TensorProto, helper

    graph = Graph(seed)
    x = graph.relu(graph.convolution("observations", planes, channels, 3))
    for _ in range(blocks):
        y = graph.relu(graph.convolution(x, channels, channels, 3))
        y = graph.convolution(y, channels, channels, 3)
        x = graph.relu(graph.node("Add", y, x))
    features = HEAD_CHANNELS * height * width
    heads = [graph.relu(graph.convolution(x, channels, HEAD_CHANNELS, 1)) for _ in range(2)]
    policy, value = [graph.node("Flatten", head, axis=1) for head in heads]
    graph.linear(policy, features, actions, name="policy")
    hidden = graph.relu(graph.linear(value, features, VALUE_HIDDEN))
    graph.linear(hidden, VALUE_HIDDEN, 3, name="value")

    def tensor(name, *shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])

    inputs = [tensor("observations", planes, height, width)]
    outputs = [tensor("policy", actions), tensor("value", 3)]
    made = helper.make_graph(graph.nodes, "tower", inputs, outputs, graph.weights)
    # Versions that every release of recent years supports.
    opset = helper.make_opsetid("", 13)
    return helper.make_model(made, opset_imports=[opset], ir_version=8).SerializeToString()


@functools.lru_cache(maxsize=1)
def quantised(model, seed, *shape):
    """The same network with products of eight-bit integers, as the bytes of an ONNX file."""
    from onnxruntime import quantization

    class Positions(quantization.CalibrationDataReader):
        def __init__(self):
            self.batches = iter([{"observations": positions(seed, CALIBRATION, *shape)}])

        def get_next(self):
            return next(self.batches, None)

    with tempfile.TemporaryDirectory() as folder:
        before, after = os.path.join(folder, "float.onnx"), os.path.join(folder, "int8.onnx")
        with open(before, "wb") as file:
            file.write(model)
        quantization.quantize_static(
            before,
            after,
            Positions(),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )
        with open(after, "rb") as file:
            return file.read()


def positions(seed, count, *shape):
    """Random binary observations."""
    import numpy

    return (numpy.random.default_rng(seed).random((count, *shape), dtype="float32") < 0.3).astype("float32")


def openvino(model, observations, precision):
    """A function that answers the batch once."""
    import openvino as ov

    core = ov.Core()
    network = core.read_model(model, b"")
    network.reshape(list(observations.shape))
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": 1,
        "NUM_STREAMS": 1,
        # Each process would pin its thread to the same core.
        "ENABLE_CPU_PINNING": False,
    }
    compiled = core.compile_model(network, "CPU", settings)
    used = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    if used != precision:
        raise RuntimeError(f"it computes in {used} on this CPU")
    request = compiled.create_infer_request()
    request.set_input_tensor(ov.Tensor(observations, shared_memory=True))
    return lambda: request.infer(share_outputs=True)


def onnxruntime(model, observations, outputs):
    """A function that answers the batch once."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.add_free_dimension_override_by_name("batch", len(observations))
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("observations", observations)
    for name, size in outputs.items():
        shape = [len(observations), size]
        binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_shape_and_type(shape, "float32", "cpu"))
    return lambda: session.run_with_iobinding(binding)


def prepare(request, seed, index):
    """The engine, as a function that answers the batch once."""
    network = request["network"]
    bytes_of_model = model(seed, **network)
    shape = (network["planes"], network["height"], network["width"])
    observations = positions(seed + index, request["batch"], *shape)
    family, precision = request["engine"].split()
    if precision == "int8":
        # What is not quantised is computed in float32.
        bytes_of_model, precision = quantised(bytes_of_model, seed, *shape), "f32"
    if family == "openvino":
        return openvino(bytes_of_model, observations, precision)
    if family == "onnxruntime":
        return onnxruntime(bytes_of_model, observations, {"policy": network["actions"], "value": 3})
    raise ValueError(f"{family} is not known here")


def batches_per_second(answer, seconds):
    """Of at least one batch."""
    count, start = 0, time.perf_counter()
    while True:
        answer()
        count += 1
        elapsed = time.perf_counter() - start
        if elapsed >= seconds:
            return count / elapsed


def measure(request, seed, index, barrier):
    answer = prepare(request, seed, index)
    batches_per_second(answer, WARM_UP * request["seconds"])
    barrier.wait(PATIENCE_SECONDS)
    return request["batch"] * batches_per_second(answer, request["seconds"])


def work(pipe, seed, index, barrier):
    """What each process does until nobody asks any more."""
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send({"per_second": measure(request, seed, index, barrier)})
        except threading.BrokenBarrierError:
            pipe.send({"waited": True})
        except Exception as error:
            barrier.abort()
            said = str(error).strip().splitlines()
            pipe.send({"error": f"{type(error).__name__}: {said[-1] if said else ''}"})


def ask(request, pipes, barrier):
    """The sum over all processes, or the first error."""
    for pipe in pipes:
        pipe.send(request)
    answers = [pipe.recv() for pipe in pipes]
    if barrier.broken:
        barrier.reset()
    errors = [answer["error"] for answer in answers if "error" in answer]
    if errors or any("waited" in answer for answer in answers):
        return {"error": errors[0] if errors else "its processes waited too long for each other"}
    return {"per_second": sum(answer["per_second"] for answer in answers)}


def versions():
    found = []
    for package in ["openvino", "onnxruntime"]:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {package}")
    return ", ".join(found)


def main():
    threads, seed = int(sys.argv[1]), int(sys.argv[2])
    # Libraries may print, so only answers go to the original standard output.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(threads)
    pipes = []
    for index in range(threads):
        ours, theirs = context.Pipe()
        context.Process(target=work, args=(theirs, seed, index, barrier), daemon=True).start()
        theirs.close()
        pipes.append(ours)
    print(json.dumps({"id": 0, "versions": versions()}), file=output, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = ask(request, pipes, barrier)
        except (EOFError, OSError):
            answer = {"error": "one of its processes died"}
        print(json.dumps({"id": request["id"], **answer}), file=output, flush=True)


if __name__ == "__main__":
    main()

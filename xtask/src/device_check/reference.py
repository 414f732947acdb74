"""Measures the network of zerofleet in PyTorch, for `cargo xtask device-check`: evaluations/s, and positions/s
of training, by mode and batch size.

Prints one JSON object per line, as the other steps do. Inputs stay on the device and are timed with its events, so that
PyTorch is measured at its best: zerofleet's own figures include every copy.
"""

import argparse
import json
import math
import statistics
import sys
import time

PLANES, HEIGHT, WIDTH, ACTIONS = 3, 6, 7, 7
HEAD_CHANNELS, VALUE_HIDDEN = 32, 64
TIMED_SECONDS = 0.25
TRAINED_ROWS = 256


def line(name, value, unit, kind="information"):
    if isinstance(value, float) and not math.isfinite(value):
        value = None  # JSON has no such numbers.
    print(json.dumps({"step": "reference", "name": name, "value": value, "unit": unit, "bar": "", "kind": kind,
                      "ok": None}), flush=True)


def skip(reason):
    line("PyTorch", reason, "", "skipped")
    sys.exit(0)


try:
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.nn.utils.fusion import fuse_conv_bn_eval
except ImportError as error:
    skip(f"Python has no PyTorch: {error}")


class Convolution(nn.Module):
    """A convolution without bias, then batch norm."""

    def __init__(self, inputs, outputs, side):
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, side, padding=side // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return self.norm(self.convolution(x))

    def folded(self):
        return fuse_conv_bn_eval(self.convolution, self.norm)


class Eager:
    """The operations of a block, one kernel each."""

    @staticmethod
    def relu(layer, x):
        return functional.relu_(layer(x))

    @staticmethod
    def add_relu(layer, x, residual):
        return layer(x).add_(residual).relu_()


class Fused:
    """Convolution, bias, residual and ReLU in one kernel of cuDNN."""

    @staticmethod
    def relu(layer, x):
        if layer.in_channels % 8:  # The fused kernels need aligned channels, which the observations do not have.
            return Eager.relu(layer, x)
        return torch.cudnn_convolution_relu(x, layer.weight, layer.bias, (1, 1), layer.padding, (1, 1), 1)

    @staticmethod
    def add_relu(layer, x, residual):
        return torch.cudnn_convolution_add_relu(
            x, layer.weight, residual, 1.0, layer.bias, (1, 1), layer.padding, (1, 1), 1)


class Tower(nn.Module):
    """The residual tower and the two heads of zerofleet."""

    def __init__(self, blocks, channels):
        super().__init__()
        self.operations = Eager
        self.stem = Convolution(PLANES, channels, 3)
        self.first = nn.ModuleList(Convolution(channels, channels, 3) for _ in range(blocks))
        self.second = nn.ModuleList(Convolution(channels, channels, 3) for _ in range(blocks))
        self.policy = Convolution(channels, HEAD_CHANNELS, 1)
        self.policy_output = nn.Linear(HEAD_CHANNELS * HEIGHT * WIDTH, ACTIONS)
        self.value = Convolution(channels, HEAD_CHANNELS, 1)
        self.value_hidden = nn.Linear(HEAD_CHANNELS * HEIGHT * WIDTH, VALUE_HIDDEN)
        self.value_output = nn.Linear(VALUE_HIDDEN, 3)

    def forward(self, x):
        relu, add_relu = self.operations.relu, self.operations.add_relu
        x = relu(self.stem, x)
        for first, second in zip(self.first, self.second):
            x = add_relu(second, relu(first, x), x)
        policy = self.policy_output(relu(self.policy, x).flatten(1))
        hidden = functional.relu_(self.value_hidden(relu(self.value, x).flatten(1)))
        return torch.cat([policy, self.value_output(hidden)], 1)

    def fold(self):
        """Folds every batch norm into the convolution before it."""
        for name in ("stem", "policy", "value"):
            setattr(self, name, getattr(self, name).folded())
        for name in ("first", "second"):
            setattr(self, name, nn.ModuleList(layer.folded() for layer in getattr(self, name)))
        return self


def seconds_per_call(call):
    """Returns the median time of a call, from events of the device."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    start = time.monotonic()
    call()
    torch.cuda.synchronize()
    repeats = max(2, int(TIMED_SECONDS / 5 / max(time.monotonic() - start, 1e-5)))
    times = []
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / repeats)
    return statistics.median(times)


def captured(call):
    """Returns a call that replays the operations of `call` as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    # The replay needs the tensors of `call`.
    return lambda: (call, graph.replay())


def make(blocks, channels, mode):
    """Returns a network for a mode: `eager`, `folded` or `fused`, with bf16 or f32 after a space."""
    operations, precision = mode.split()
    torch.manual_seed(1)
    network = Tower(blocks, channels).eval()
    if operations != "eager":
        network = network.fold()
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    network = network.to(device="cuda", dtype=kind).to(memory_format=torch.channels_last)
    if operations == "fused":
        network.operations = Fused
    return network, kind


def observations(batch, kind):
    x = (torch.rand(batch, PLANES, HEIGHT, WIDTH, device="cuda") < 0.3).to(kind)
    return x.contiguous(memory_format=torch.channels_last)


class Training:
    """A training step as the learner takes it: forward and backward in bf16 with parameters in float32, clipped AdamW,
    and the average of the parameters."""

    def __init__(self, blocks, channels, rows):
        torch.manual_seed(1)
        self.network = Tower(blocks, channels).to("cuda").to(memory_format=torch.channels_last).train()
        self.forward = self.network
        self.parameters = list(self.network.parameters())
        self.averages = [parameter.detach().clone() for parameter in self.parameters]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3, fused=True, capturable=True)
        self.x = observations(rows, torch.float32)
        self.policies = torch.full((rows, ACTIONS), 1 / ACTIONS, device="cuda")
        self.outcomes = torch.full((rows, 3), 1 / 3, device="cuda")

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        # A cache of casts would not outlive the capture of a graph.
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            outputs = self.forward(self.x)
        policies, outcomes = outputs.float().split([ACTIONS, 3], 1)
        loss = functional.cross_entropy(policies, self.policies) + functional.cross_entropy(outcomes, self.outcomes)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.averages, self.parameters, 0.01)


def measure_training(tower, mode, rows):
    """Prints the positions/s of training in a mode: `eager`, `compile` (default mode), or `graph` of the whole step."""
    blocks, channels = tower

    def made():
        training = Training(blocks, channels, rows)
        if mode == "compile":
            training.forward = torch.compile(training.network, dynamic=False)
        return captured(training.step) if mode == "graph" else training.step

    with torch.enable_grad():
        report(f"{blocks}x{channels} training {mode}, batch {rows}", rows, "positions/s", made)


def report(name, count, unit, make_call):
    """Prints the speed of the made call; a call that fails is reported and costs no other."""
    try:
        line(name, count / seconds_per_call(make_call()), unit)
    except Exception as error:  # Any failure of PyTorch, of its compiler or of the memory.
        line(name, str(error).strip().splitlines()[0][:200] if str(error).strip() else repr(error), "", "skipped")


def measure(tower, mode, batch, wrap):
    """Prints the evaluations/s of a tower in a mode."""
    blocks, channels = tower
    operations = mode if wrap is None else f"{wrap} of {mode}"

    def made():
        network, kind = make(blocks, channels, mode)
        x = observations(batch, kind)
        called = torch.compile(network, dynamic=False) if wrap == "compile" else network
        call = lambda: called(x)
        return captured(call) if wrap == "graph" else call

    report(f"{blocks}x{channels} {operations}, batch {batch}", batch, "evaluations/s", made)


def fused_error(tower):
    """Prints the relative error of cuDNN's fused kernels against separate ones."""
    blocks, channels = tower
    try:
        network, kind = make(blocks, channels, "folded bf16")
        x = observations(256, kind)
        expected = network(x).double()
        network.operations = Fused
        error = (network(x).double() - expected).norm() / expected.norm()
        line(f"{blocks}x{channels} fused bf16 against folded bf16, batch 256", float(error), "relative")
    except Exception as error:
        line(f"{blocks}x{channels} fused bf16", str(error).strip().splitlines()[0][:200], "", "skipped")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--towers", default="20x256,6x64,10x128")
    parser.add_argument("--batches", default="2048,512")
    parser.add_argument("--seconds", type=float, default=80.0, help="begin no further measurement after this time")
    arguments = parser.parse_args()
    start = time.monotonic()
    if not torch.cuda.is_available():
        skip(f"PyTorch {torch.__version__} sees no CUDA device")
    towers = [tuple(map(int, tower.split("x"))) for tower in arguments.towers.split(",")]
    batches = [int(batch) for batch in arguments.batches.split(",")]
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    line("PyTorch", f"{torch.__version__}, cuDNN {torch.backends.cudnn.version()}", "")

    with torch.no_grad():
        side = 8192
        left, right = (torch.randn(side, side, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        rate = 2 * side**3 / seconds_per_call(lambda: left @ right)
        line(f"peak: bf16 product of {side}x{side}", rate / 1e12, "TFLOP/s")
        del left, right
        # What the bars need comes first, what takes long to compile last.
        pairs = [(tower, batch) for tower in towers for batch in batches]
        plan = [(measure, (tower, "fused bf16", batch, "graph")) for tower, batch in pairs]
        plan += [(measure, (tower, mode, batch, None)) for tower, batch in pairs
                 for mode in ("folded bf16", "eager bf16")]
        of_training = [(measure_training, (tower, mode, TRAINED_ROWS)) for mode in ("graph", "eager", "compile")
                       for tower in sorted(towers)]
        plan += of_training[:-2]  # Larger networks are compiled for long.
        plan += [(measure, (tower, mode, batch, None)) for tower, batch in pairs
                 for mode in ("eager f32", "fused bf16")]
        plan += [(measure, (tower, "folded bf16", batch, "graph")) for tower, batch in pairs]
        plan += [(measure, (tower, "folded bf16", batches[0], "compile")) for tower in towers] + of_training[-2:]
        fused_error(towers[0])
        for number, (function, of) in enumerate(plan):
            if time.monotonic() - start > arguments.seconds:
                line("modes", f"{len(plan) - number} of {len(plan)} were not measured in {arguments.seconds:.0f} s", "",
                     "skipped")
                break
            function(*of)


if __name__ == "__main__":
    main()

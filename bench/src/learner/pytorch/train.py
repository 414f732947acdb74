"""Training steps in PyTorch on the CPU, for `zerofleet bench learner`: the network, the losses and the optimiser of
zerofleet, eager or compiled.

The first argument is a JSON object: the shape of the network, the files of its weights and of a batch, the settings of
the training, the precision, the number of threads, and whether to compile. The program takes the first steps and prints
their results as a JSON object on one line. Each line of standard input is then a request `{"id", "seconds"}`, answered
with the steps per second over that time.
"""

import json
import os
import shutil
import struct
import sys
import sysconfig
import time
import warnings

warnings.filterwarnings("ignore")  # PyTorch complains about the absence of NumPy, which is not needed here.

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

HEAD_CHANNELS, VALUE_HIDDEN, RESULTS = 32, 64, 3
NORM_EPSILON, NORM_MOMENTUM = 1e-5, 0.1
ILLEGAL = -1e9  # The logit of an illegal action.
# Each memory format is tried for this many steps after its first one.
TRIAL_STEPS = 3


class Convolution(nn.Module):
    """A convolution without bias, then batch norm."""

    def __init__(self, inputs, outputs, side):
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, side, padding=side // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=NORM_EPSILON, momentum=NORM_MOMENTUM)

    def forward(self, x):
        return self.norm(self.convolution(x))

    def tensors(self, name):
        norm = {"weight": self.norm.weight, "bias": self.norm.bias,
                "mean": self.norm.running_mean, "variance": self.norm.running_var}
        return {f"{name}.convolution.weight": self.convolution.weight,
                **{f"{name}.norm.{part}": tensor for part, tensor in norm.items()}}


class Tower(nn.Module):
    """The residual tower and the two heads."""

    def __init__(self, planes, height, width, actions, channels, blocks):
        super().__init__()
        features = HEAD_CHANNELS * height * width
        self.stem = Convolution(planes, channels, 3)
        self.first = nn.ModuleList(Convolution(channels, channels, 3) for _ in range(blocks))
        self.second = nn.ModuleList(Convolution(channels, channels, 3) for _ in range(blocks))
        self.policy = Convolution(channels, HEAD_CHANNELS, 1)
        self.policy_output = nn.Linear(features, actions)
        self.value = Convolution(channels, HEAD_CHANNELS, 1)
        self.value_hidden = nn.Linear(features, VALUE_HIDDEN)
        self.value_output = nn.Linear(VALUE_HIDDEN, RESULTS)

    def forward(self, x):
        x = functional.relu(self.stem(x), inplace=True)
        for first, second in zip(self.first, self.second):
            y = functional.relu(first(x), inplace=True)
            x = functional.relu(second(y).add_(x), inplace=True)
        policy = self.policy_output(by_cell(functional.relu(self.policy(x), inplace=True)))
        hidden = functional.relu(self.value_hidden(by_cell(functional.relu(self.value(x), inplace=True))))
        return policy.float(), self.value_output(hidden).float()

    def tensors(self):
        """Returns every tensor by its name in files."""
        found = {**self.stem.tensors("stem"), **self.policy.tensors("policy"), **self.value.tensors("value")}
        for index, (first, second) in enumerate(zip(self.first, self.second)):
            found |= {**first.tensors(f"block.{index}.first"), **second.tensors(f"block.{index}.second")}
        for name, layer in [("policy.output", self.policy_output), ("value.hidden", self.value_hidden),
                            ("value.output", self.value_output)]:
            found |= {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}
        return found


def by_cell(x):
    """Features `[B, F, H, W]` as `[B, H * W * F]`, the order of the columns of the heads' matrices."""
    return x.permute(0, 2, 3, 1).flatten(1)


def losses(network, batch):
    """Returns the total, the policy and the value loss."""
    policy, value = network(batch["observations"])
    log_priors = functional.log_softmax(policy.masked_fill(batch["illegal"], ILLEGAL), -1)
    log_values = functional.log_softmax(value, -1)
    weights = batch["policy_weights"]
    policy_loss = -((batch["policies"] * log_priors).sum(-1) * weights).sum() / weights.sum().clamp_min(1.0)
    value_loss = -(batch["wdl"] * log_values).sum(-1).mean()
    return policy_loss + batch["value_loss_weight"] * value_loss, policy_loss, value_loss


class Trainer:
    """The state of a training."""

    def __init__(self, options, memory_format):
        self.settings, bf16 = options["settings"], options["precision"] == "bf16"
        self.autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16)
        self.network = Tower(**options["network"])
        load(self.network, options["weights"])
        self.network = self.network.train().to(memory_format=memory_format)
        self.batch = read_batch(options, memory_format)
        self.losses = torch.compile(losses, dynamic=False, fullgraph=True) if options["compile"] else losses
        tensors = self.network.tensors().values()
        trained = [tensor for tensor in tensors if tensor.requires_grad]
        groups = [{"params": [tensor for tensor in trained if tensor.dim() > 1],
                   "weight_decay": self.settings["weight_decay"]},
                  {"params": [tensor for tensor in trained if tensor.dim() == 1], "weight_decay": 0.0}]
        self.parameters = [tensor for group in groups for tensor in group["params"]]
        self.optimiser = torch.optim.AdamW(groups, lr=self.settings["learning_rate"], betas=self.settings["betas"],
                                           eps=self.settings["epsilon"], fused=True)
        self.newest = [tensor.detach() for tensor in tensors]
        self.average = [tensor.clone() for tensor in self.newest]
        self.steps = 0

    def step(self):
        """Returns the losses and the norm of the gradient, before the weights were updated."""
        self.optimiser.zero_grad(set_to_none=True)
        with self.autocast:
            found = self.losses(self.network, self.batch)
        found[0].backward()
        norm = nn.utils.clip_grad_norm_(self.parameters, self.settings["gradient_clip_norm"])
        self.optimiser.step()
        self.steps += 1
        share = max(9 / (self.steps + 9), 1 - self.settings["ema_decay"])
        torch._foreach_lerp_(self.average, self.newest, share)
        return [value.item() for value in (*found, norm)]

    def average_norm(self):
        """Returns the Euclidean norm of the averaged parameters and running statistics."""
        return sum(tensor.double().square().sum() for tensor in self.average).sqrt().item()

    def steps_per_second(self, seconds):
        """Takes at least one step."""
        count, start = 0, time.perf_counter()
        while True:
            self.step()
            count += 1
            elapsed = time.perf_counter() - start
            if elapsed >= seconds:
                return count / elapsed


def load(network, path):
    """Loads a safetensors file, which must have the tensors of the network and no others."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        entries, data = json.loads(file.read(length)), bytearray(file.read())
    entries.pop("__metadata__", None)
    tensors = network.tensors()
    if entries.keys() != tensors.keys():
        raise ValueError(f"the weights have other tensors: {sorted(entries.keys() ^ tensors.keys())}")
    for name, entry in entries.items():
        begin, end = entry["data_offsets"]
        tensor = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin)
        with torch.no_grad():
            tensors[name].copy_(tensor.view(entry["shape"]))


def read_batch(options, memory_format):
    """Reads the fields of a batch, which lie in its file as float32, one after the other."""
    shape, positions = options["network"], options["positions"]
    with open(options["batch"], "rb") as file:
        numbers = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    shapes = [(shape["planes"], shape["height"], shape["width"]), (shape["actions"],), (shape["actions"],),
              (RESULTS,), ()]
    sizes = [positions * torch.Size(one).numel() for one in shapes]
    observations, policies, legal, wdl, policy_weights = [
        part.view(positions, *one).clone() for part, one in zip(numbers.split(sizes), shapes)]
    return {"observations": observations.contiguous(memory_format=memory_format), "policies": policies,
            "illegal": legal == 0, "wdl": wdl, "policy_weights": policy_weights,
            "value_loss_weight": options["settings"]["value_loss_weight"]}


def check_compiler():
    """Raises an error if code that `torch.compile` generates cannot be built."""
    compilers = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++"]
    if not any(shutil.which(compiler) for compiler in compilers):
        raise RuntimeError(f"torch.compile needs a C++ compiler: there is no {' or '.join(compilers)}")
    headers = sysconfig.get_path("include")
    if not os.path.isfile(os.path.join(headers, "Python.h")):
        raise RuntimeError(f"torch.compile needs the headers of Python: there is no Python.h in {headers}")


def seconds_of_steps(trainer):
    """Returns the time of the trial steps; the first one, which compiles and allocates, was taken before."""
    start = time.perf_counter()
    for _ in range(TRIAL_STEPS):
        trainer.step()
    return time.perf_counter() - start


def prepare(options):
    """Returns a trainer in the faster memory format, the name of this format, and the results of the first steps."""
    if options["compile"]:
        check_compiler()
    torch.set_num_threads(options["threads"])
    tried = []
    for name, memory_format in [("channels last", torch.channels_last), ("channels first", torch.contiguous_format)]:
        torch._dynamo.reset()
        trainer = Trainer(options, memory_format)
        first = [trainer.step() for _ in range(options["checked_steps"])]
        average = trainer.average_norm()
        tried.append((seconds_of_steps(trainer), name, trainer, {"losses": first, "average_norm": average}))
    _, name, trainer, results = min(tried, key=lambda one: one[0])
    return trainer, {"format": name, **results}


def explained(error):
    """Returns an error in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return {"error": f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]}


def main():
    # Libraries may print, so only answers go to the original standard output.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(number, fields):
        print(json.dumps({"id": number, **fields}), file=output, flush=True)

    try:
        trainer, results = prepare(json.loads(sys.argv[1]))
    except Exception as error:  # Any failure of PyTorch or of its compiler is reported in place of figures.
        return answer(0, explained(error))
    answer(0, {"version": torch.__version__, **results})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer(request["id"], {"per_second": trainer.steps_per_second(request["seconds"])})
        except Exception as error:
            answer(request["id"], explained(error))


if __name__ == "__main__":
    main()

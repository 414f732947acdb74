"""Makes PyTorch importable on a machine without the libraries of CUDA: python minimal_torch.py FOLDER LIBTORCH OUT.

FOLDER holds the CUDA wheel of torch for Linux, LIBTORCH is the folder with libtorch_cpu.so, libc10.so, libcudart.so.13 and
libcupti.so.13, OUT/site becomes the folder for PYTHONPATH, OUT/lib the stubs, before LIBTORCH in LD_LIBRARY_PATH. Run with
TORCH_USE_RTLD_GLOBAL=1, with which torch loads its libraries lazily. Needs cc, nm and readelf.
"""

import pathlib
import subprocess
import sys
import zipfile

folder, libtorch, out = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
(wheel,) = folder.glob("torch-*.whl")
site, stubs = out / "site", out / "lib"
stubs.mkdir(parents=True)
LIBRARIES = ("libtorch_python.so", "libshm.so", "libtorch.so", "libtorch_global_deps.so", "libc10_cuda.so", "libgomp.so.1")


def is_needed(name):
    if name.startswith("torch/lib/"):
        return name.removeprefix("torch/lib/") in LIBRARIES
    if name.startswith("torch/bin/"):
        return name == "torch/bin/torch_shm_manager"
    return name.startswith(("torch/", "torchgen/")) and name.endswith((".py", ".so", ".json", ".yaml"))


with zipfile.ZipFile(wheel) as file:
    file.extractall(site, filter(is_needed, file.namelist()))
(site / "torch/bin/torch_shm_manager").chmod(0o755)


def lines(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def symbols(library, which):
    return {line.split()[-1].split("@")[0] for line in lines("nm", "-D", which, str(library))}


# What the Python library takes the address of, when it is loaded, and the CPU half does not define.
python = site / "torch/lib/libtorch_python.so"
of_cpu = [libtorch / name for name in ("libtorch_cpu.so", "libc10.so", "libcudart.so.13")]
of_cpu += [site / "torch/lib/libc10_cuda.so", site / "torch/lib/libshm.so"]
fields = [line.split() for line in lines("readelf", "-rW", str(python))]
taken = {field[4].split("@")[0] for field in fields if len(field) > 4 and field[2] in ("R_X86_64_GLOB_DAT", "R_X86_64_64")}
defined = set().union(*(symbols(library, "--defined-only") for library in of_cpu))
missing = sorted(name for name in (taken & symbols(python, "--undefined-only")) - defined if "4cuda" in name or "4c10d" in name
                 or "Cuda" in name)
code = ["extern char _ZTVN10__cxxabiv117__class_type_infoE[];",
        "void *_ZN4c10d15get_gil_checkerEv(void) { static void *place[8]; return place; }"]
for name in missing:
    if name.startswith("_ZTI"):
        code.append(f'void *{name}[8] = {{_ZTVN10__cxxabiv117__class_type_infoE + 16, "{name[4:]}"}};')
    else:
        code.append(f"char {name}[256];")


def stub(name, *arguments):
    source = "\n".join(arguments) + "\n"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(stubs / name), f"-Wl,-soname,{name}", "-lstdc++"]
    subprocess.run(command, input=source, text=True, check=True)


stub("libtorch_cuda.so", *code)
for name in ("libcudnn.so.9", "libcufile.so.0"):
    stub(name)

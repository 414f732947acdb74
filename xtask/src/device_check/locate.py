"""Prints the version and the library folders of this Python's torch as JSON, without importing it."""

import importlib.metadata
import importlib.util
import json
import pathlib

spec = importlib.util.find_spec("torch")
if spec is None:
    raise SystemExit("Python has no module torch")
torch = pathlib.Path(list(spec.submodule_search_locations)[0])
folders = [torch / "lib", *sorted((torch.parent / "nvidia").glob("*/lib"))]
print(json.dumps({"version": importlib.metadata.version("torch"), "folders": [str(folder) for folder in folders]}))

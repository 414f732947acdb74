"""Takes from the one wheel in a folder what begins like one of some names, and keeps the rest of each name, so that
headers keep their tree and libraries their numbers. Reading a member to its end checks its checksum.

Arguments: the folder of the wheel, the target, the folder inside the wheel, the beginnings of names in it.
"""

import pathlib
import shutil
import sys
import zipfile

folder, target, root, take = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], tuple(sys.argv[4:])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    for info in archive.infolist():
        before, _, name = info.filename.partition(root)
        if before or info.is_dir() or ".." in name.split("/") or not name.startswith(take):
            continue
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(info) as source, open(path, "wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)

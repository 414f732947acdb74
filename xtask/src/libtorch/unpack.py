"""Takes from the one wheel in a folder what begins like one of some names, and keeps the rest of each name, so that
headers keep their tree and libraries their numbers; the licence files go to `licenses/PACKAGE`. Reading a member to its
end checks its checksum.

Arguments: the folder of the wheel, the target, the package, the folder inside the wheel, the beginnings of names in it.
"""

import pathlib
import shutil
import sys
import zipfile

folder, target, package, root = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4]
take = tuple(sys.argv[5:])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    for info in archive.infolist():
        parts = info.filename.split("/")
        if info.is_dir() or ".." in parts:
            continue
        before, _, name = info.filename.partition(root)
        licence = parts[-1].upper().startswith(("LICENSE", "LICENCE", "NOTICE", "COPYING"))
        if licence and (".dist-info/" in info.filename or info.filename == root + parts[-1]):
            path = target / "licenses" / package / parts[-1]
        elif not before and take and name.startswith(take):
            path = target / name
        else:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(info) as source, open(path, "wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)

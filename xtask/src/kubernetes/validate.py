"""Holds rendered Kubernetes documents against the published schemas, and writes them as JSON for the checks in Rust.

Arguments: the folder with kubernetes-validate, versions separated by commas, the file to write, rendered files.
"""

import json
import os
import sys

site, versions, written, rendered = sys.argv[1], sys.argv[2].split(","), sys.argv[3], sys.argv[4:]
sys.path.insert(0, site)

import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402

# Documents that overlays share are validated once.
held, wrong, without_schema, files = set(), [], set(), []
for path in rendered:
    with open(path, encoding="utf-8") as text:
        documents = [document for document in yaml.safe_load_all(text) if document]
    files.append(documents)
    for document in documents:
        once = json.dumps(document, sort_keys=True)
        if once in held:
            continue
        held.add(once)
        name = f"{os.path.basename(path)}: {document.get('kind')} {document.get('metadata', {}).get('name')}"
        for version in versions:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                where = ".".join(str(part) for part in error.path)
                wrong.append(f"{name}: Kubernetes {version}: {where}: {error.message}")
            except kubernetes_validate.SchemaNotFoundError:
                without_schema.add(document["kind"])
with open(written, "w", encoding="utf-8") as out:
    json.dump({"documents": files, "wrong": wrong, "without_schema": sorted(without_schema)}, out)

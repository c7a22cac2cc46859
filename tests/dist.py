# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build what a release publishes, the same bytes from the same commit: ``python -m tests.dist FOLDER``.

The tarball, ``MANIFEST.json`` to sign, an SBOM (SPDX 2.3) and ``SHA256SUMS``. What ``ansible-galaxy collection build`` makes has the order
of the file system, the modes of the umask and the time of the build. Here it is sorted, and dated by ``SOURCE_DATE_EPOCH`` or the commit.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
LICENCE, DOCUMENT = "GPL-3.0-or-later", "SPDXRef-DOCUMENT"


def build(folder: Path) -> Path:
    """Build the collection into an empty folder, and return the tarball."""
    folder.mkdir(parents=True)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as made:
        galaxy = Path(sys.executable).with_name("ansible-galaxy")
        output(str(galaxy), "collection", "build", "--output-path", made, str(REPOSITORY))
        (source,) = Path(made).glob("*.tar.gz")
        with tarfile.open(source) as tar:
            members = {member.name: member for member in tar}
            contents = {name: tar.extractfile(member).read() for name, member in members.items() if member.isfile()}  # type: ignore[union-attr]
    files = json.loads(contents["FILES.json"])
    files["files"].sort(key=lambda file: file["name"])
    contents["FILES.json"] = dump(files)
    manifest = json.loads(contents["MANIFEST.json"])
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(contents["FILES.json"]).hexdigest()
    contents["MANIFEST.json"] = dump(manifest)
    tarball = folder / source.name
    with (
        tarball.open("wb") as file,
        gzip.GzipFile("", "wb", mtime=epoch, fileobj=file) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, member in sorted(members.items()):
            member.pax_headers, member.mtime, member.size = {}, epoch, len(contents.get(name, b""))
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            tar.addfile(member, io.BytesIO(contents[name]) if name in contents else None)
    (folder / "MANIFEST.json").write_bytes(contents["MANIFEST.json"])
    about = manifest["collection_info"]
    (folder / f"{tarball.name}.spdx.json").write_bytes(dump(sbom(about, tarball, files["files"], epoch)))
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("".join(sums))
    return tarball


def sbom(about: dict[str, Any], tarball: Path, files: list[dict[str, Any]], epoch: int) -> dict[str, Any]:
    """Return the SPDX document of a tarball. The collection has no dependencies: it lists files."""
    name = f"{about['namespace']}.{about['name']}"
    digest = hashlib.sha256(tarball.read_bytes()).hexdigest()
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))

    def of_all(checksum: str) -> dict[str, Any]:
        sums = [{"algorithm": "SHA256", "checksumValue": checksum}]
        return {"licenseConcluded": LICENCE, "copyrightText": "NOASSERTION", "checksums": sums}

    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": DOCUMENT,
        "name": tarball.name,
        "documentNamespace": f"{about['repository']}/spdx/{digest}",
        "creationInfo": {"created": created, "creators": [f"Organization: {name} contributors"]},
        "packages": [
            {
                "SPDXID": "SPDXRef-collection",
                "name": name,
                "versionInfo": about["version"],
                "downloadLocation": about["repository"],
                "filesAnalyzed": False,
                "licenseDeclared": LICENCE,
                **of_all(digest),
            }
        ],
        "files": [
            {
                "SPDXID": f"SPDXRef-file-{number}",
                "fileName": f"./{file['name']}",
                **of_all(file["chksum_sha256"]),
            }
            for number, file in enumerate(files)
            if file["ftype"] == "file"
        ],
        "relationships": [{"spdxElementId": DOCUMENT, "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-collection"}],
    }


def dump(document: Any) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()


def output(*command: str) -> str:
    return subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))

"""A tiny image for tests with containers, made from busybox: no registry is needed."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest

from paraval.workspaces.container_engine import ContainerEngine, find_engine

IMAGE = "localhost/paraval-test:tiny"
_CLAUDE = """#!/bin/sh
echo "$@" > "$HOME/arguments"
echo 'by claude' > by-claude.txt
echo '{"type": "result", "subtype": "success", "is_error": false, "result": "done", "num_turns": 1}'
"""


@functools.cache
def why_no_containers() -> str | None:
    found = find_engine("podman")
    if isinstance(found, str):
        return found.partition("\n")[0]
    if shutil.which("busybox") is None:
        return "the tests' image is made from busybox: apt-get install busybox-static"
    return None


needs_containers = pytest.mark.skipif(
    why_no_containers() is not None and "CI" not in os.environ, reason=str(why_no_containers())
)


def engine() -> ContainerEngine:
    found = find_engine("podman")
    assert not isinstance(found, str), found
    return found


def make_image() -> str:
    """The image, made unless it is here. Its working directory is /work, with a file in it."""
    if engine().call("image", "inspect", IMAGE).is_well:
        return IMAGE
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        (root / "bin").mkdir(parents=True)
        busybox = shutil.which("busybox")
        assert busybox is not None
        shutil.copy(busybox, root / "bin" / "busybox")
        listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
        for name in set(listed.stdout.split()) - {"busybox"}:
            (root / "bin" / name).symlink_to("busybox")
        (root / "bin" / "claude").write_text(_CLAUDE)
        (root / "bin" / "claude").chmod(0o755)
        (root / "tmp").mkdir()
        (root / "work").mkdir()
        (root / "work" / "of-the-image").write_text("image\n")
        archive = Path(folder, "image.tar")
        with tarfile.open(archive, "w") as packed:
            packed.add(root, arcname=".")
        made = engine().call("import", "--change", "WORKDIR=/work", str(archive), IMAGE)
        assert made.is_well, made.stderr
    return IMAGE

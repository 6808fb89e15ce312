"""A stuck or dead process becomes a named error in all the others, within a minute.

Each rank has one thread that tells the others once a second: I am alive, my main thread stands here, and has or has not
moved. Moving is seen from outside: the stack of the main thread is another one than a second ago, which no code has to
help with. A loop that runs for ever moves and gets nowhere: from the first forward pass on, a rank for which others
wait has to call a layer or send a message now and then. A reward has a limit of its own, ``reward.timeout``.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any

import torch.distributed as dist
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from ppo_lab.learners import collectives

BEAT = 1.0  # seconds between two signs of life
SILENCE = 20.0  # seconds without one: dead, or cut off
GRACE = 5.0  # seconds for the main thread to end by itself
FAILED = 1  # exit status
RUNNING: list[Watchdog] = []


class RankError(RuntimeError):
    """Another process of the run died, failed or does not move; the message says which, where and how to go on."""


@dataclass(frozen=True)
class Report:
    """What a rank says of itself."""

    beat: int = 0
    still: float = 0.0  # seconds since its main thread was last seen to move
    idle: float = 0.0  # seconds since it last called a layer or sent a message, while this package is at work
    where: str = "?"
    waits: bool = False  # meant to stand still
    busy: bool = False  # something outside its main thread works for it
    end: str | None = None  # "done", or what it raised


def verdict(
    reports: Mapping[int, Report], silent: Mapping[int, float], *, me: int, patience: float, silence: float = SILENCE
) -> str | None:
    """What is wrong with the run, or None.

    Args:
        reports: the newest of every rank.
        silent: seconds since each rank's beat last changed, as seen from here.
        me: my rank.
        patience: seconds in which all that should move may stand still, or run in circles while another waits.

    >>> verdict({0: Report(still=50, where="a"), 1: Report(still=50, where="b")}, {1: 0}, me=0, patience=45)
    'no rank has moved for 45 s: rank 0 in a, rank 1 in b'
    """
    for rank, report in reports.items():
        if rank == me or report.end == "done":
            continue
        if report.end is not None:
            return f"rank {rank} raised {report.end}"
        if silent[rank] > silence:
            return f"rank {rank} has died or was cut off: no sign of life for {silence:g} s, last in {report.where}"
    active = {rank: report for rank, report in reports.items() if not report.waits and report.end is None}
    if any(report.busy for report in reports.values()) or not active:
        return None
    stuck = {rank: report for rank, report in active.items() if report.still > patience}
    circling = {rank: report for rank, report in active.items() if rank not in stuck and report.idle > patience}
    if not stuck or len(stuck) + len(circling) < len(active):
        return None
    places = ", ".join(f"rank {rank} in {report.where}" for rank, report in stuck.items())
    ended = "".join(f"; rank {rank} has ended" for rank, report in reports.items() if report.end == "done")
    if not circling:
        return f"no rank has moved for {patience:g} s: {places}{ended}"
    loops = ", ".join(f"rank {rank} in {report.where}" for rank, report in circling.items())
    return f"{loops} has called no layer for {patience:g} s, an endless loop perhaps; waiting: {places}{ended}"


class Watchdog:
    """Signs of life between the ranks of one run; `start` it on every rank, `close` it at the end.

    What it finds is printed to stderr as one line, and the process ends with status 1: its main thread may sit in a
    message that never comes, where no exception reaches it. Checkpoints are whole or not there, so the run resumes.

    Args:
        patience: seconds; see ``learner.patience``.
        hint: what to do then, appended to the message.
    """

    def __init__(self, *, patience: float, hint: str = "") -> None:
        self.rank, self.world = collectives.rank(), collectives.world()
        self.patience, self.hint = patience, hint
        self.store, self.main = _store(self.rank, self.world), threading.main_thread().ident
        self.reports = {r: Report() for r in range(self.world)}
        self.heard = dict.fromkeys(range(self.world), time.monotonic())
        self.moved, self.beat, self.lost = time.monotonic(), 0, 0
        self.layers, self.progress, self.advanced = 0, (0, 0), time.monotonic()
        self.stack: list[tuple[int, int]] = []
        self.closed = threading.Event()
        self.end: str | None = None
        self.hook: RemovableHandle | None = None
        self.thread = threading.Thread(target=self._watch, daemon=True, name="watchdog")

    @classmethod
    def start(cls, *, patience: float, hint: str = "") -> Watchdog | None:
        """Begin to watch; None where there is but one process, or this process watches already."""
        if collectives.world() == 1 or RUNNING:
            return RUNNING[0] if RUNNING else None
        dog = cls(patience=patience, hint=hint)
        RUNNING.append(dog)
        dog._tell()
        atexit.register(dog.close)  # a script that ends without a word has ended well
        sys.excepthook = _telling(sys.excepthook)
        dog.hook = register_module_forward_pre_hook(dog._note)
        dog.thread.start()
        return dog

    def close(self, end: str = "done") -> None:
        """Say how this rank ended, and stop watching."""
        if not self.closed.is_set():
            self.closed.set()
            if self.thread.is_alive() and self.thread is not threading.current_thread():
                self.thread.join(GRACE)  # inside the store when Python ends, it would abort the process
            self.end = end
            try:
                self._tell()
            except Exception:  # noqa: S110 - rank 0, which keeps the book, may have gone already
                pass
        if self.hook is not None:
            self.hook.remove()
        if self in RUNNING:
            RUNNING.remove(self)

    def _note(self, *_: Any) -> None:
        """A layer is called, in whatever thread; what rank 0 does for all is no run yet."""
        self.layers += not collectives.ALONE

    def wrong(self) -> str | None:
        """What is wrong now, as far as this rank knows."""
        now = time.monotonic()
        silent = {r: now - heard for r, heard in self.heard.items()}
        return verdict(self.reports, silent, me=self.rank, patience=self.patience)

    def _watch(self) -> None:
        while not self.closed.wait(BEAT):
            try:
                self._tell()
                self._ask()
                self.lost = 0
            except Exception:  # the book is kept by rank 0
                if self.reports[0].end == "done":
                    return
                self.lost += 1
                if self.lost > GRACE:
                    self._finish("rank 0 has died or was cut off: it does not answer")
                continue
            if (wrong := self.wrong()) is not None:
                self._finish(wrong)

    def _tell(self) -> None:
        frame, now = sys._current_frames().get(self.main or 0), time.monotonic()
        stack, progress = _stack(frame), (self.layers, collectives.SENT[0])
        if progress != self.progress or not self.layers or not _own(frame):
            self.progress, self.advanced = progress, now
        if stack != self.stack:
            self.stack, self.moved = stack, now
        self.beat += 1
        report = Report(
            beat=self.beat, still=now - self.moved, idle=now - self.advanced, where=_where(frame), end=self.end,
            waits=any(not busy for _, busy in collectives.EXCUSES), busy=any(busy for _, busy in collectives.EXCUSES),
        )  # fmt: skip
        self.reports[self.rank] = report
        self.store.set(str(self.rank), json.dumps(asdict(report)))

    def _ask(self) -> None:
        for rank in range(self.world):
            if rank != self.rank and self.store.check([str(rank)]):
                report = Report(**json.loads(self.store.get(str(rank))))
                if report.beat != self.reports[rank].beat:
                    self.heard[rank] = time.monotonic()
                self.reports[rank] = report

    def _finish(self, wrong: str) -> None:
        """Let the main thread end by itself if it can; then end the process."""
        if not self.closed.wait(GRACE):
            print(f"error: rank {self.rank}: {self.message(wrong)}", file=sys.stderr, flush=True)
            os._exit(FAILED)

    def message(self, wrong: str) -> str:
        """The finding with what to do."""
        return f"{wrong}{f'; {self.hint}' if self.hint else ''}"


def explained(error: BaseException) -> BaseException:
    """A broken connection as what broke it, where another rank is to blame; any other error as it is."""
    broken = ("connection", "gloo", "nccl", "timed out", "broken pipe", "reset by peer", "socket")
    if not RUNNING or not isinstance(error, RuntimeError) or not any(w in str(error).lower() for w in broken):
        return error
    dog, end = RUNNING[0], time.monotonic() + SILENCE + 2 * BEAT
    while time.monotonic() < end and dog.lost <= GRACE:
        if (wrong := dog.wrong()) is not None:
            return RankError(dog.message(wrong))
        time.sleep(BEAT / 4)
    return RankError(dog.message("rank 0 has died or was cut off: it does not answer")) if dog.lost else error


def tell(error: BaseException) -> None:
    """Let the other ranks know that this one ends with an error."""
    if RUNNING:
        RUNNING[0].close(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


@contextmanager
def watched() -> Iterator[None]:
    """What fails inside is told to the other ranks, and named where one of them is to blame.

    Raises:
        RankError: in place of a broken connection.
    """
    try:
        yield
    except BaseException as error:
        named = explained(error)
        tell(error)
        if named is not error:
            raise named from error
        raise


def _telling(before: Any) -> Any:
    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        named = explained(error)
        tell(error)
        before(kind, error, traceback)
        if named is not error:
            print(f"error: {named}", file=sys.stderr, flush=True)

    return hook


def _store(rank: int, world: int) -> dist.Store:
    """A book that rank 0 keeps, apart from the one of the process group; every rank calls it."""
    host, timeout = os.environ.get("MASTER_ADDR", "localhost"), timedelta(seconds=30)
    place: list[Any] = [None]
    if rank == 0:
        store = dist.TCPStore(host, 0, world, is_master=True, wait_for_workers=False, timeout=timeout)
        place[0] = store.port
    dist.broadcast_object_list(place, src=0)
    return store if rank == 0 else dist.TCPStore(host, place[0], world, is_master=False, timeout=timeout)


def _frames(frame: FrameType | None) -> list[FrameType]:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _stack(frame: FrameType | None) -> list[tuple[int, int]]:
    return [(id(f.f_code), f.f_lasti) for f in _frames(frame)]


def _where(frame: FrameType | None) -> str:
    """The innermost two places in this package, as a reader of a traceback would name them."""
    own = _own(frame) or _frames(frame)[:1]
    return " of ".join(f"{os.path.basename(f.f_code.co_filename)}:{f.f_lineno} {f.f_code.co_name}" for f in own[:2])


def _own(frame: FrameType | None) -> list[FrameType]:
    """Frames of this package."""
    return [f for f in _frames(frame) if f.f_globals.get("__name__", "").startswith("ppo_lab.")]

"""A panel in a real kernel: thirty changes sent as a browser sends them cost two drawings and end on the last value."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
PANEL = "from course.probe_panel import panel\np = panel()\n"


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    from jupyter_client.manager import start_new_kernel

    path = os.pathsep.join([str(TESTS), str(TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    manager, client = start_new_kernel(kernel_name="python3", env=environment)
    try:
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def ask(client: Any, code: str) -> Any:
    """Run code in the kernel; what it prints, read as JSON."""
    printed: list[str] = []

    def collect(message: Any) -> None:
        content = message["content"]
        assert message["msg_type"] != "error", content
        printed.append(content.get("text", ""))

    client.execute_interactive(code, output_hook=collect, timeout=60)
    return json.loads("".join(printed) or "null")


@pytest.mark.parametrize("gap", [0.0, 0.02])
def test_a_burst_of_thirty(kernel: Any, gap: float) -> None:
    ask(kernel, PANEL)
    comm = ask(kernel, "import json; print(json.dumps(p._widgets['height'].comm.comm_id))")
    before = ask(kernel, "print(p.renders)")
    for i in range(30):
        state = {"value": round(0.1 * ((i + 1) % 10), 1)}
        content = {"comm_id": comm, "data": {"method": "update", "state": state, "buffer_paths": []}}
        kernel.shell_channel.send(kernel.session.msg("comm_msg", content))
        time.sleep(gap)
    last, deadline = state["value"], time.monotonic() + 20
    report = "import json; print(json.dumps([p.renders, p.settings['height'], p.facts['end'], p.alt]))"
    while ask(kernel, report)[1:3] != [last, last] and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)  # nothing may come after the last value
    renders, *shown = ask(kernel, report)
    assert shown == [last, last, f"a line from {last} to {last:.2f}"]
    assert 1 <= renders - before <= 2


def test_pictures_reach_the_browser(kernel: Any) -> None:
    """The picture is sent as the value of the HTML widget, with its text."""
    ask(kernel, PANEL)
    seen: list[str] = []

    def collect(message: Any) -> None:
        if message["msg_type"] == "comm_msg":
            seen.append(message["content"]["data"].get("state", {}).get("value", ""))

    kernel.execute_interactive("_ = p.set(height=0.9)", output_hook=collect, timeout=60)
    images = [text for text in seen if isinstance(text, str) and text.startswith("<img")]
    assert len(images) == 1 and 'alt="a line from 0.9 to 0.90"' in images[0]

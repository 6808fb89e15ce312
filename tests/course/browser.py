"""A real JupyterLab and a real Chromium for the tests: one server and one browser for all of them.

The server starts as ``ppo-lab lab`` starts it, with the learner's own settings folder replaced by an empty one. Needs
Debian's ``chromium`` (or a Chrome) on the PATH; where there is none the tests fail and say so.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from ppo_lab.check import BROWSERS
from ppo_lab.course.lab import command, environment

TESTS = Path(__file__).resolve().parents[1]
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync")  # fmt: skip
OPEN = ("--no-browser", "--allow-root", "--ip=127.0.0.1", "--ServerApp.port_retries=0", "--IdentityProvider.token=",
        "--ServerApp.password=", "--ServerApp.disable_check_xsrf=True")  # fmt: skip
SLOW = 120_000  # milliseconds: a busy machine


class Lab:
    """Server and browser over a folder of notebooks; a context manager."""

    def __init__(self, folder: Path, scratch: Path, *, dark: bool = False) -> None:
        self.folder, self.scratch, self.dark = folder, scratch, dark

    def __enter__(self) -> Lab:
        from playwright.sync_api import sync_playwright

        chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
        assert chromium, "no Chromium found: sudo apt-get install -y chromium"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self._log = (self.scratch / "server.log").open("w")
        self._server = subprocess.Popen(
            command(self.folder, (*OPEN, f"--port={port}")), env=self._environment(), stdout=self._log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._wait_for_server()
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=chromium, args=[*ARGUMENTS])
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if hasattr(self, "_playwright"):
            self._browser.close()
            self._playwright.stop()
        os.killpg(self._server.pid, signal.SIGTERM)
        self._server.wait(20)
        self._log.close()

    def _environment(self) -> dict[str, str]:
        """As a learner's, without what is set on this machine."""
        settings = self.scratch / "settings"
        theme = settings / "@jupyterlab" / "apputils-extension" / "themes.jupyterlab-settings"
        theme.parent.mkdir(parents=True, exist_ok=True)
        theme.write_text(f'{{"theme": "JupyterLab {"Dark" if self.dark else "Light"}"}}', encoding="utf-8")
        path = os.pathsep.join([str(TESTS), str(TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        own = {"JUPYTER_CONFIG_DIR": "config", "JUPYTERLAB_WORKSPACES_DIR": "workspaces"}
        folders = {name: str(self.scratch / folder) for name, folder in own.items()}
        return {**environment(), **folders, "JUPYTERLAB_SETTINGS_DIR": str(settings), "PYTHONPATH": path}

    def _wait_for_server(self) -> None:
        deadline = time.monotonic() + SLOW / 1000
        while True:
            try:
                urllib.request.urlopen(f"{self.address}/api", timeout=2)
                return
            except (urllib.error.URLError, OSError):
                alive = self._server.poll() is None and time.monotonic() < deadline
                assert alive, (self.scratch / "server.log").read_text()[-2000:]
                time.sleep(0.3)

    def open(self, notebook: str, *, width: int = 1400, height: int = 1600) -> Any:
        """A page with the notebook open and its kernel idle. ``page.errors`` collects what the console complains of."""
        page: Any = self._browser.new_page(viewport={"width": width, "height": height})
        page.errors = []
        page.on("console", lambda message: page.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.goto(f"{self.address}/lab/tree/{notebook}?reset")
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=SLOW)
        page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for(timeout=SLOW)
        page.wait_for_timeout(1000)
        return page

    def run_all(self, page: Any) -> None:
        """Run every cell and wait until the kernel is idle again. A click too early is lost, so look and try again."""
        for _ in range(5):
            page.locator(".lm-MenuBar-itemLabel", has_text="Run").first.click()
            page.locator(".lm-Menu-itemLabel", has_text="Run All Cells").first.click()
            page.wait_for_timeout(1500)
            prompts = "".join(page.locator(".jp-InputPrompt").all_inner_texts())
            if any(mark.isdigit() or mark == "*" for mark in prompts):
                break
        page.wait_for_function(
            "![...document.querySelectorAll('.jp-InputPrompt')].some(e => e.textContent.includes('*'))", timeout=SLOW
        )
        page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for(timeout=SLOW)

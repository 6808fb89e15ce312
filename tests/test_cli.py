"""The command line, driven as a user does: what it prints, which code it ends with, what Ctrl-C leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from ppo_lab.cli import app
from ppo_lab.cli.loop import BRAKING, Brake, metric_line, resume_command, show_samples
from ppo_lab.cli.shared import expect_run, plain_errors

ROOT = Path(__file__).resolve().parent.parent

# A run that does nothing but count, behind the interface of the real one. Its steps last a moment, its stop() leaves a
# checkpoint, and it fails where it is told to: so what is tested is the command line alone.
STAND_IN = textwrap.dedent("""
    import pathlib, sys, time, types

    class Run:
        def __init__(self, config, *, folder, resume=False):
            self.config, self.folder, self.step, self.stopping = config, pathlib.Path(folder), 0, False
            self.sample_prompts = ["one", "two", "one"]
            if config.seed == 13:
                raise ValueError("seed must not be 13; use another")
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "config.yaml").write_text("{}")
            if resume:
                self.step = int((self.folder / "checkpoints" / "last").read_text())

        def __iter__(self):
            while self.step < self.config.steps and not self.stopping:
                time.sleep(PAUSE)
                if self.config.seed == 7 and self.step == 1:
                    error = ZeroDivisionError("the reward callable divided by zero")
                    error.add_note("A checkpoint is there.")
                    raise error
                self.step += 1
                yield types.SimpleNamespace(step=self.step, score_mean=0.5, ref_kl_sum=2.0, beta=0.05,
                                            response_length=11.5, evaluation=None)
            (self.folder / "checkpoints").mkdir(exist_ok=True)
            (self.folder / "checkpoints" / "last").write_text(str(self.step))

        def stop(self):
            self.stopping = True

        def generate(self, prompts):
            return [f"answer to {p} at {self.step}" for p in prompts]

        def close(self):
            (self.folder / "closed").touch()

    module = types.ModuleType("ppo_lab.rlhf")
    module.Run = Run
    sys.modules["ppo_lab.rlhf"] = module
""")


def stand_in(pause: float = 0.0) -> str:
    return STAND_IN.replace("PAUSE", str(pause))


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Run the command line in an empty folder with the stand-in, in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "ppo_lab.rlhf", raising=False)
    monkeypatch.setitem(sys.modules, "ppo_lab.rlhf", None)  # so that the original is put back afterwards
    exec(stand_in(), {})
    (tmp_path / "mine.yaml").write_text("name: mine\nsteps: 3\n", encoding="utf-8")
    return lambda *words: CliRunner().invoke(app, list(words))


def test_train_says_one_line_a_step_and_shows_samples(call, tmp_path: Path) -> None:
    done = call("train", "mine.yaml")
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stdout.splitlines() if line.startswith("step ")]
    assert [line.split("  ")[0] for line in lines] == ["step 1/3", "step 2/3", "step 3/3"]
    assert "score +0.500  KL  2.000  β 0.0500  length  11.5" in lines[0]
    assert done.stdout.count("  step 0  answer to one at 0") == 1 and "  step 3  answer to two at 3" in done.stdout
    assert "ppo-lab dashboard runs/mine" in done.stdout and (tmp_path / "runs" / "mine" / "closed").exists()


def test_overrides_and_folder(call, tmp_path: Path) -> None:
    done = call("train", "mine.yaml", "steps=1", "name=other", "--folder", "here")
    assert done.exit_code == 0 and "step 1/1" in done.stdout and (tmp_path / "here" / "config.yaml").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "neither a file nor the name of a shipped config"),
        (["mine.yaml", "ppo.clip_range=0.1"], "did you mean ppo.clip?"),
        (["mine.yaml", "steps=0"], "steps"),
        (["mine.yaml", "steps"], "key=value"),
        (["mine.yaml", "--resume"], "holds no run"),
        (["mine.yaml", "seed=13"], "seed must not be 13; use another"),
    ],
)
def test_bad_input_is_a_message_and_nothing_else(call, words: list[str], message: str) -> None:
    done = call("train", *words)
    assert done.exit_code == 2 and message in done.stderr
    assert done.stderr.startswith("error: ") and "Traceback" not in done.output and "step" not in done.stdout


def test_a_run_is_not_overwritten_but_resumed(call) -> None:
    assert call("train", "mine.yaml").exit_code == 0
    again = call("train", "mine.yaml")
    assert again.exit_code == 2 and "runs/mine already holds a run; add --resume" in again.stderr
    Path("runs/mine/checkpoints/last").write_text("1")  # as if it had been stopped there
    more = call("train", "mine.yaml", "--resume")
    assert more.exit_code == 0 and "step 2/3" in more.stdout and "step 1/3" not in more.stdout


def test_an_error_on_the_way_keeps_its_traceback_in_the_run(call, tmp_path: Path) -> None:
    done = call("train", "mine.yaml", "seed=7")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: the reward callable divided by zero\nA checkpoint is there.\n")
    assert "Traceback" not in done.output and "runs/mine/error.txt" in done.stderr
    assert "ZeroDivisionError" in (tmp_path / "runs" / "mine" / "error.txt").read_text()
    assert (tmp_path / "runs" / "mine" / "closed").exists()


def test_the_traceback_can_be_asked_for(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PPO_LAB_TRACEBACK", "1")
    assert isinstance(call("train", "mine.yaml", "seed=13").exception, ValueError)


def test_a_full_disk_shows_the_traceback_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import typer

    with pytest.raises(typer.Exit), plain_errors(tmp_path / "gone"):
        raise OSError("no space left")
    said = capsys.readouterr().err
    assert "error: no space left" in said and "Traceback" in said


def test_sampling_leaves_the_run_as_it_is(call, tmp_path: Path) -> None:
    """The real run cuts its logs back when it is opened to go on; one still in progress must keep them."""
    run = tmp_path / "runs" / "mine"
    assert call("train", "mine.yaml").exit_code == 0
    (run / "closed").unlink()
    (run / "models").mkdir()
    before = sorted(run.rglob("*"))
    done = call("sample", "runs/mine", "hello", "and you")
    assert done.stdout == "hello … answer to hello at 3\nand you … answer to and you at 3\n"
    assert sorted(run.rglob("*")) == before
    (run / "checkpoints" / "last").unlink()
    assert "holds no checkpoint yet" in call("sample", "runs/mine", "hello").stderr


@pytest.mark.parametrize("command", ["sample", "export", "dashboard"])
def test_commands_on_a_run_that_is_not_there(call, command: str) -> None:
    words = {"sample": ["hello"], "export": ["model"], "dashboard": []}[command]
    done = call(command, "runs/none", *words)
    assert done.exit_code == 2 and "runs/none holds no run" in done.stderr


@pytest.mark.parametrize("command", ["", "train", "sample", "export", "fetch", "check", "dashboard", "lab", "grade"])
def test_help(call, command: str) -> None:
    done = call(*filter(None, [command, "--help"]))
    assert done.exit_code == 0 and "Usage:" in done.stdout and "..." not in done.stdout.replace("]...", "").replace(
        "}...", ""
    ), "a summary is cut short"


def test_only_what_is_built_is_shown(call) -> None:
    for later in ("compare", "doctor", "new", "tune"):
        assert later not in call("--help").stdout.split() and call(later).exit_code == 2


def test_help_is_quick_and_light() -> None:
    code = "import sys, ppo_lab.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "matplotlib", "numpy"} & {*done.stdout.split()}


def test_version(call) -> None:
    from ppo_lab import __version__

    assert call("--version").stdout.startswith(f"ppo_lab {__version__}, Python 3.")


# --- Ctrl-C ----------------------------------------------------------------------------------------------------------


def start_training(folder: Path, pause: float) -> subprocess.Popen[str]:
    """A real process at its second step."""
    (folder / "mine.yaml").write_text("name: mine\nsteps: 1000\n", encoding="utf-8")
    script = folder / "drive.py"
    main = "from ppo_lab.cli import main\nsys.argv = ['ppo-lab', 'train', 'mine.yaml', 'seed=3']\nmain()\n"
    script.write_text(stand_in(pause) + main, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    command, pipe = [sys.executable, str(script)], subprocess.PIPE
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    while "step    2/1000" not in (line := process.stdout.readline()):
        assert line, process.communicate()[1]
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_ctrl_c_leaves_a_checkpoint_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    process = start_training(tmp_path, pause=0.1)
    process.send_signal(number)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and errors.strip() == BRAKING.decode().strip()
    step = int((tmp_path / "runs" / "mine" / "checkpoints" / "last").read_text())
    assert 2 <= step < 1000 and f"Stopped at step {step} of 1000, checkpoint written" in said
    assert "ppo-lab train mine.yaml seed=3 --folder runs/mine --resume" in said
    assert (tmp_path / "runs" / "mine" / "closed").exists()


def test_the_second_ctrl_c_aborts_at_once(tmp_path: Path) -> None:
    process = start_training(tmp_path, pause=20.0)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline() + process.stderr.readline() == BRAKING.decode()
    pressed = time.monotonic()
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=60)
    assert time.monotonic() - pressed < 15, "waited for the step to end"
    assert process.returncode == 130 and "Aborted" in said and "Traceback" not in errors
    assert not (tmp_path / "runs" / "mine" / "checkpoints").exists()


def test_the_brake_gives_signals_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    pulled: list[str] = []
    with Brake(lambda: pulled.append("stop")) as brake:
        os.kill(os.getpid(), signal.SIGINT)
        assert brake.pulled and pulled == ["stop"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


# --- parts -----------------------------------------------------------------------------------------------------------


def test_metric_line_with_an_evaluation() -> None:
    held_out = SimpleNamespace(eval_score=0.25, eval_ref_kl_sum=1.5, eval_gold=-0.125)
    metrics = SimpleNamespace(
        step=7, score_mean=-0.5, ref_kl_sum=12.3456, beta=0.1, response_length=9.96, evaluation=held_out
    )
    assert metric_line(metrics, 40, 0.714) == (  # type: ignore[arg-type]
        "step  7/40  score -0.500  KL 12.346  β 0.1000  length  10.0  0.71 s"
        "  | held out: score +0.250  KL 1.500  gold -0.125"
    )
    held_out.eval_gold = None
    assert metric_line(metrics, 40, 0.714).endswith("KL 1.500")  # type: ignore[arg-type]


def test_resume_command_survives_a_shell() -> None:
    import shlex

    words = shlex.split(resume_command("my config.yaml", ["corpus.path=a b.txt"], Path("runs/x")))
    assert words == ["ppo-lab", "train", "my config.yaml", "corpus.path=a b.txt", "--folder", "runs/x", "--resume"]


def test_text_of_a_model_is_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show_samples(["[bold]"], {"step 0": ["[red]x[/red] :smile:"]})
    assert "[bold] …" in capsys.readouterr().out


def test_expect_run(tmp_path: Path) -> None:
    expect_run(tmp_path, wanted=False)
    with pytest.raises(ValueError, match="holds no run"):
        expect_run(tmp_path, wanted=True)
    (tmp_path / "config.yaml").touch()
    expect_run(tmp_path, wanted=True)
    expect_run(tmp_path, wanted=False)  # all that a start which failed leaves behind
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(ValueError, match="already holds a run"):
        expect_run(tmp_path, wanted=False)

"""The report is written of any run, also half a one, and the texts of a run are data in it."""

import json
import threading
from pathlib import Path

import pytest
from diagnose.pages import Page, html_of
from diagnose.synthetic import make_run, rows, samples, write_rows

from ppo_lab import metrics
from ppo_lab.diagnose import report
from ppo_lab.diagnose.dashboard import write_report
from ppo_lab.diagnose.folder import read_run
from ppo_lab.diagnose.words import headlines, number
from ppo_lab.metrics import GROUPS

# --- texts of the run are data, never markup ------------------------------------------------------------------------

NASTY = '</style><script>alert("x")</script><img src=http://a.b/c onerror=x> $x_1$ \x07 \ud800 ${title} &amp;'


def test_texts_are_escaped_wherever_they_come_from(tmp_path):
    folder = make_run(tmp_path / "a <b> & 'c' \"d\"")
    lines = samples()
    lines[0] |= {"prompt": NASTY, "response": NASTY}
    lines[3] |= {"prompt": NASTY, "response": "   "}
    write_rows(folder / "samples.jsonl", lines)
    config = folder / "config.yaml"
    config.write_text(config.read_text() + "  # <script>alert(1)</script>\n")
    (folder / "models/sft/quality.json").write_text(json.dumps({"<b>bold</b>": "<i>x</i>", "list": [["<u>"]]}))
    picture, html = write_report(folder)
    page = Page(html.read_text(encoding="utf-8"))
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "img", "b", "u"} and "a <b> & 'c' \"d\"" in page.words
    shown = NASTY.replace("\x07", "�").replace("\ud800", "?")
    assert page.words.count(" ".join(shown.split())) == 2  # the prompt once, the answer once
    assert "empty answer" in page.words and "<script>alert(1)</script>" in page.words
    assert picture.is_file()


# --- half a run -----------------------------------------------------------------------------------------------------


def test_no_log_is_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(ValueError, match=r"run must be a folder that holds metrics\.jsonl, got '.*' without one; st"):
        write_report(tmp_path)
    with pytest.raises(ValueError, match=r"got '.*nothing' without one; give the folder of a run"):
        write_report(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_a_finished_step(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "sco')
    page = Page(write_report(tmp_path)[1].read_text(encoding="utf-8"))
    assert "No step has finished yet." in page.words and "0 steps" in page.words
    told = [attributes["aria-label"] for tag, attributes in page.tags if tag == "svg"]
    assert told == [f"{title}. Not measured." for title in GROUPS.values()]


def test_a_log_alone_is_enough(tmp_path):
    data = [{name: value for name, value in row.items() if not name.startswith("eval")} for row in rows(5)]
    write_rows(tmp_path / "metrics.jsonl", data)
    run = read_run(tmp_path)
    page = Page(report.cards(run))
    assert f"{number(data[0]['score_mean'])} → {number(data[-1]['score_mean'])}" in page.words
    assert "training prompts, step 1 → 5" in page.words
    assert report.samples(run) == report.made(run) == report.config(run) == "" != report.cost(run)


def test_an_interrupted_run_says_so(tmp_path):
    run = read_run(make_run(tmp_path / "run", steps=12, planned=40))
    assert run.state == "12 of 40 steps, unfinished"
    assert headlines(run)[0].where == "held-out prompts, step 0 → 12"
    (tmp_path / "run" / "baseline.json").unlink()
    first = headlines(read_run(tmp_path / "run"))[0]
    assert first.before is None and first.after == rows(12)[-1]["eval_score"]


def test_an_older_evaluation_is_shown_with_its_step(tmp_path):
    write_rows(tmp_path / "metrics.jsonl", rows(40)[:35])
    assert "reward, step 30" in Page(report.table(read_run(tmp_path))).text


@pytest.mark.parametrize(("name", "text"), [
    ("config.yaml", "ppo: [1,"), ("config.yaml", "- 1"), ("baseline.json", '{"eval_sc'), ("best.json", "[]"),
    ("models/reward_model/quality.json", '{"acc'),
])  # fmt: skip
def test_a_file_that_is_half_written_is_remarked_upon_and_left_out(tmp_path, name, text):
    folder = make_run(tmp_path / "run", steps=3)
    (folder / name).write_text(text)
    run = read_run(folder)
    assert len(run.remarks) == 1 and run.remarks[0].startswith(f"{Path(name).name} could not be read: ")
    if name == "best.json":
        assert run.remarks[0] in html_of(folder).text


def test_a_log_broken_in_the_middle_is_an_error(tmp_path):
    folder = make_run(tmp_path / "run", steps=3)
    lines = (folder / "metrics.jsonl").read_text().split("\n")
    (folder / "metrics.jsonl").write_text("\n".join([lines[0], lines[1][:50], *lines[2:]]))
    with pytest.raises(ValueError, match=r"metrics\.jsonl line 2 must be one strict JSON object"):
        write_report(folder)
    assert not (folder / "report.html").exists()


def test_a_run_is_read_while_it_is_being_written(tmp_path):
    data, log = rows(200), tmp_path / "metrics.jsonl"
    log.touch()

    def train():
        with open(log, "a") as file:
            for row in data:
                line = json.dumps(metrics.encode(row)) + "\n"
                for part in (line[:300], line[300:]):  # as a kernel may
                    file.write(part)
                    file.flush()

    writer, seen = threading.Thread(target=train), [0]
    writer.start()
    while writer.is_alive():
        seen.append(read_run(tmp_path).step)
    writer.join()
    assert seen == sorted(seen) and read_run(tmp_path).step == 200


def test_a_kill_while_writing_leaves_the_older_report(tmp_path, monkeypatch):
    folder = make_run(tmp_path / "run", steps=3)
    (folder / "report.html").write_text("older")
    monkeypatch.setattr(report, "page", lambda run: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_report(folder)
    assert (folder / "report.html").read_text() == "older"

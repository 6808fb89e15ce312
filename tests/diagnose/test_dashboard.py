"""The report is one file that needs no other and tells the facts."""

import re
import shutil
import warnings

import pytest
from diagnose.pages import Page
from diagnose.synthetic import evaluation, make_run, rows, write_rows

from ppo_lab.diagnose import report
from ppo_lab.diagnose.dashboard import write_report
from ppo_lab.diagnose.folder import read_run
from ppo_lab.diagnose.words import describe, latest, number, pairs, verdicts
from ppo_lab.metrics import GROUPS, REGISTRY


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = make_run(tmp_path_factory.mktemp("runs") / "demo")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return write_report(folder)


@pytest.fixture(scope="module")
def page(finished):
    return Page(finished[1].read_text(encoding="utf-8"))


# --- a finished run -------------------------------------------------------------------------------------------------


def test_both_files_are_written_and_nothing_else(finished):
    png, html = finished
    assert png.name == "dashboard.png" and png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    size = int.from_bytes(png.read_bytes()[16:20]), int.from_bytes(png.read_bytes()[20:24])
    assert size == (1800, 1483)
    assert 100_000 < html.stat().st_size < 1_500_000
    assert not [path for path in png.parent.iterdir() if path.name.startswith(".")]


def test_the_page_loads_nothing(finished, page):
    text = finished[1].read_text(encoding="utf-8")
    assert "http://" not in text and "https://" not in text and "@import" not in text and "<script" not in text
    for tag, attributes in page.tags:
        for name in ("src", "href", "xlink:href", "data", "action"):
            assert attributes.get(name, "#").startswith(("#", "data:,")), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")]
    assert re.findall(r"url\((?!#)", text) == []
    assert "default-src 'none'" in next(a["content"] for t, a in page.tags if a.get("http-equiv"))


def test_every_reference_inside_the_page_has_its_target_and_ids_are_unique(finished, page):
    text = finished[1].read_text(encoding="utf-8")
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', text))
    assert {a or b for a, b in wanted} <= set(ids)


def test_every_panel_is_there_with_its_facts_as_alternative_text(page):
    pictures = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(pictures) == len(GROUPS) + 1 and all(picture["role"] == "img" for picture in pictures)
    assert "at confidence 0.95, 0.93 of 200 pairs ordered rightly." in pictures[-1]["aria-label"]
    data, start = rows(40), read_start()
    for panel in GROUPS:
        alt = describe(panel, data, start)
        assert [picture["aria-label"] for picture in pictures].count(alt) == 1
        assert re.search(r"\d", alt)
    score = data[-1]["score_mean"]
    assert f"{number(score)} at step 40" in describe("reward", data)


def read_start() -> dict:
    return {name: getattr(evaluation(0.0), name) for name in evaluation(0.0).__slots__}


def test_the_headlines_are_before_and_after(page):
    last = rows(40)[-1]
    assert "40 of 40 steps · best held-out objective at step 40" in page.words
    for name in ("eval_score", "eval_gold", "eval_ref_kl_sum", "eval_response_length"):
        assert f"{number(read_start()[name])} → {number(last[name])}" in page.words
    assert "held-out prompts, step 0 → 40" in page.words
    assert "All 14 metrics that have a healthy band are inside it at the last look." in page.words


def test_a_band_that_was_left_and_found_again_is_told() -> None:
    from ppo_lab.diagnose.words import left_and_back

    logged = [dict(row) for row in rows(6)]
    logged[1]["policy_kl_k3"], logged[5]["ratio_max"] = 2.0, 1e6
    assert left_and_back(logged) == {"policy_kl_k3": 2}


def test_the_table_has_every_metric_with_value_unit_band_and_reading(page):
    last = latest(rows(40))
    for name, entry in REGISTRY.items():
        if name == "log_ratio_histogram" or name not in last:
            continue
        assert entry.name in page.text and entry.title in page.text and entry.reads in page.words
        assert number(last[name][1]) in page.text
    assert "0 to 10" in page.text and "✓ inside" in page.text
    assert page.words.count("definition, other names") == len(last)
    assert "TRL (experimental.ppo): objective/kl" in page.words


def test_samples_stand_side_by_side_with_their_scores(page):
    for text in ("a dull cast and the plot is thin .", "the script is <slow> & tired .", "it is “brilliant” ."):
        assert text in page.text
    assert "score −0.9 · gold −0.4 · KL 0" in page.text and "score 2.2 · gold 0.8 · KL 4.2" in page.text


def test_time_memory_models_and_config_are_told(page):
    data = rows(40)
    seconds = {phase: sum(row[f"seconds_{phase}"] for row in data) for phase in ("rollout", "score", "update")}
    total = sum(seconds.values())
    for phase, spent in seconds.items():
        assert f"{phase} {100 * spent / total:.0f} %" in page.words
    assert f"Response tokens a second {number(40 * 1400 / total)}" in page.words and "615 MiB" in page.text
    assert "Pair accuracy 0.874" in page.words and "Pair accuracy, clean 0.951" in page.words
    assert "Loss last 1.4" in page.words and "4.59" not in page.words  # a hundred losses are no table
    assert "Clip ε 0.2" in page.words and "Actor rate 0.0003" in page.words and "actor_rate: 0.0003" in page.words


def test_the_page_is_made_for_dark_for_paper_and_for_phones(finished):
    text = finished[1].read_text(encoding="utf-8")
    for rule in ("@media (prefers-color-scheme: dark)", "@media print", "@media (max-width: 720px)", "@page",
                 'name="viewport"', '<html lang="en">'):  # fmt: skip
        assert rule in text
    drawn = text[text.index("<svg") :]
    assert "var(--blue)" in drawn and "var(--ink)" in drawn
    assert not re.search(r"#[0-9a-f]{6}", "".join(re.findall(r"<svg.*?</svg>", drawn, flags=re.S)))


def test_the_same_run_gives_the_same_bytes(finished, tmp_path):
    again = write_report(make_run(tmp_path / "demo"))
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in finished]


# --- verdicts and words ---------------------------------------------------------------------------------------------


def test_a_metric_outside_its_band_is_named_first_and_marked(tmp_path):
    folder = make_run(tmp_path / "run", steps=4)
    data = rows(4)
    data[-1] |= {"clip_fraction": 0.7, "explained_variance": -2.0, "value_loss": float("nan")}
    write_rows(folder / "metrics.jsonl", data)
    page = Page(report.cards(read_run(folder)) + report.table(read_run(folder)))
    assert "3 of 15 outside their healthy band at the last look: value loss not finite; outside the clip band above; " \
           "explained variance below." in page.words  # fmt: skip
    assert {"▲ above", "▼ below", "× not finite"} <= set(page.text)
    assert {entry.name: verdict for entry, _, verdict in verdicts(data) if verdict != "inside"} == {
        "value_loss": "not finite", "clip_fraction": "above", "explained_variance": "below"}  # fmt: skip


def test_facts_name_extremes_and_what_is_not_finite():
    data = [{"step": i + 1, "gradient_norm": v} for i, v in enumerate([1.0, 9.0, "nan", 0.25, 2.0])]
    assert describe("gradient", data) == (
        "Gradient and rates. gradient norm: 1 at step 1, 2 at step 5, lowest 0.25 at step 4, highest 9 at step 2, "
        "not finite at 1 of 5 steps."
    )
    counts = [0] * 41
    counts[20], counts[30] = 90, 10
    assert "log-ratio histogram at step 7: 90 % of tokens within ±0.15 nats of 0." in describe(
        "ratio", [{"step": 7, "log_ratio_histogram": counts}])  # fmt: skip


def test_pairs_follow_prompts_also_where_they_repeat():
    def sample(step, prompt, response):
        return {"step": step, "prompt": prompt, "response": response}

    rows = [(0, "a", "1"), (0, "a", "2"), (5, "a", "x"), (9, "a", "3"), (9, "a", "4"), (9, "b", "5")]
    found = pairs(sample(*row) for row in rows)
    assert [(x and x["response"], y and y["response"]) for x, y in found] == [("1", "3"), ("2", "4"), (None, "5")]
    assert pairs([]) == [] and pairs([sample(0, "a", "1")])[0][1] is None


# --- a real browser -------------------------------------------------------------------------------------------------


@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium: apt-get install chromium")
def test_in_a_browser_it_fits_every_width_and_asks_for_nothing(finished):
    playwright = pytest.importorskip("playwright.sync_api")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]  # fmt: skip
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for width, columns in ((360, 1), (1366, 4)):
            page, asked, said = browser.new_page(viewport={"width": width, "height": 800}), [], []
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.on("console", lambda message, said=said: said.append(message.text))
            page.goto(finished[1].as_uri())
            assert [url for url in asked if not url.startswith("data:")] == [finished[1].as_uri()] and said == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            tops = page.evaluate("""
                [...document.querySelector(".panels").children].map(panel => panel.getBoundingClientRect().top)
            """)
            assert len(tops) == 4 and len(set(tops)) == 4 // columns
            assert page.get_by_role("img").count() == len(GROUPS) + 1
        colors = {}
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme=scheme)
            page.goto(finished[1].as_uri())
            colors[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert colors == {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 22, 28)"}
        browser.close()

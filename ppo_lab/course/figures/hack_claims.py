"""Claims of notebook 12 over its recorded runs, entered in the ledger; what is compared is in `experiments.pressed`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ppo_lab.course.claims import claim, measure
from ppo_lab.course.experiments import pressed
from ppo_lab.course.experiments.pressed import Rows
from ppo_lab.evaluate.best_of_n import best_of_n_kl

CURES = {"mean": "mean of 4", "min": "min of 4", "mean_minus_std": "mean − σ", "ptx": "PPO-ptx", "average": "EMA"}


def claim_judges(rows: Rows, few: str, middle: str, many: str) -> None:
    """Three judges without a leash."""
    claim("B11.hack", "without a leash the proxy gains more than gold (1,000 pairs, deviations)",
          measure(pressed.unearned(rows, few), least=0.0))  # fmt: skip
    gain = pressed.differences(pressed.ends(rows, many), pressed.ends(rows, few))
    claim("B11.data", "a judge from 4,000 pairs leaves more gold than one from 1,000", measure(gain, least=0.0))
    claim("B11.turn", "pressed on, gold falls: lower at step 12 than at 6 (2,000 pairs)",
          measure(pressed.late(rows, middle), most=0.0))  # fmt: skip
    claim("B9.rank", "the better the judge on held-out pairs, the more gold (rank correlation over the three)",
          measure(pressed.agreement(rows, (few, middle, many)), least=0.0))  # fmt: skip


def claim_leashes(rows: Rows, best_of: Rows, kl: float) -> None:
    """A small judge; a leash at equal KL; best-of-n at equal KL."""
    gold = {arm: pressed.ends(rows, arm) for arm in ("small", "middle")}
    claim("B11.size", "a larger reward model leaves more gold (same 2,000 pairs)",
          measure(pressed.differences(gold["middle"], gold["small"]), least=0.0))  # fmt: skip
    at = {arm: pressed.gold_at(rows, arm, kl) for arm in ("middle", "beta 0.2")}
    claim("B11.leash", "at equal KL a leash buys no gold: within 0.05 (β 0.2 less β 0)",
          measure(pressed.differences(at["beta 0.2"], at["middle"]), least=-0.05, most=0.05))  # fmt: skip
    own = pressed.gold_at(rows, "middle", best_of_n_kl(8))
    bought = [run[3]["gold"] for run in pressed.runs(best_of, "middle")]
    claim("B11.bon", "at the KL of best-of-8, best-of-n has more gold than PPO (2,000 pairs)",
          measure(pressed.differences(bought, own), least=0.0))  # fmt: skip


def claim_law(rows: Rows, best_of: Rows) -> None:
    """How much of gold's gain the form of Gao et al. explains."""
    shares = [fit.explained for fit in pressed.fits(rows, "middle", "rl")]
    claim("B11.law-rl", "Gao's form for RL explains nine tenths of gold's gain (2,000 pairs)",
          measure(shares, least=0.9))  # fmt: skip
    shares = [fit.explained for fit in pressed.fits(best_of, "middle", "best-of-n")]
    claim("B11.law-bon", "Gao's form for best-of-n explains nine tenths of it (2,000 pairs)",
          measure(shares, least=0.9))  # fmt: skip


def claim_diversity(rows: Rows) -> None:
    """What is lost of distinct-2, with and without a leash; what a lower temperature does."""
    lost = {arm: pressed.share_lost(rows, arm) for arm in ("middle", "beta 0.2")}
    claim("B11.diversity", "without a KL term diversity falls by 40–60 %", measure(lost["middle"], least=0.4, most=0.6))
    claim("B11.kept", "with β 0.2 less of it is lost",
          measure(pressed.differences(lost["middle"], lost["beta 0.2"]), least=0.0))  # fmt: skip
    claim("B11.cold", "a lower temperature, 0.5, cures repetition (distinct-2 rises)",
          measure(pressed.cooled(rows, "middle", 0.5, "distinct_2"), least=0.0))  # fmt: skip


def claim_switches(rows: Rows, names: Mapping[str, str], base: str = "middle") -> None:
    """Gold with a switch less gold without, at equal steps; and grammar, for the mix of texts."""
    for arm, name in names.items():
        claim(f"B11.{arm.replace('_', '-')}", f"{name}: more gold at equal steps",
              measure(gain_of(rows, arm, base), least=0.0))  # fmt: skip
    claim("B11.ptx-grammar", "PPO-ptx: more whole sentences at equal steps",
          measure(gain_of(rows, "ptx", base, "grammatical"), least=0.0))  # fmt: skip


def gain_of(rows: Rows, arm: str, base: str = "middle", key: str = "gold") -> Sequence[float]:
    """``key`` at the end of an arm less that of another, seed by seed."""
    return pressed.differences(pressed.ends(rows, arm, key), pressed.ends(rows, base, key))

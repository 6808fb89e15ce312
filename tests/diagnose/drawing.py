"""One panel drawn on its own, and what can be read off it."""

from matplotlib.figure import Figure
from matplotlib.text import Text

from ppo_lab.diagnose import style
from ppo_lab.diagnose.plots import PANELS
from ppo_lab.metrics import REGISTRY

CURVES = {  # panel: curves on the left scale, curves on the right
    "reward": (["score_mean", "reward_mean", "non_score_reward"], ["gold_mean"]),
    "evaluation": (["eval_score", "eval_objective"], ["eval_gold"]),
    "reference": (["ref_kl_sum", "eval_ref_kl_sum"], []),
    "length": (["response_length", "eval_response_length"], ["stop_rate"]),
    "step": (["policy_kl_k3", "policy_kl_k1"], []),
    "clip": (["clip_fraction", "active_clip_fraction", "value_clip_fraction"], []),
    "ratio": ([], []),
    "gradient": (["gradient_norm", "gradient_norm_max"], ["actor_rate", "critic_rate"]),
    "loss": (["policy_loss"], ["value_loss"]),
    "value": (["explained_variance"], ["value_mean", "return_mean"]),
    "entropy": (["entropy"], ["distinct_1", "distinct_2"]),
    "cost": ([], ["peak_memory_mb"]),
}


def draw(panel, lines, **options):
    """The axes of one panel, laid out and painted as on screen."""
    with style.styled():
        sheet = Figure(figsize=(3.2, 2.7))
        ax = sheet.subplots()
        PANELS[panel](ax, lines, **options)
        sheet.canvas.draw()
    return sheet


def lines_of(axes):
    """gid -> line, of the metrics drawn on one scale."""
    return {line.get_gid(): line for line in axes.get_lines() if line.get_gid() in REGISTRY}


def texts(sheet):
    return " | ".join(text.get_text() for text in sheet.findobj(Text))

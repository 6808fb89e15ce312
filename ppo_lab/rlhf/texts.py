"""Between token ids and words: what a reward, a sample file and a reader see of answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ppo_lab.records import Responses

from .score import Scorer
from .tokens import decode_answers


@dataclass(frozen=True)
class Texts:
    """Prompts as given, extra columns by corpus row, and the tokenizer that turns answers into words."""

    tokenizer: Any
    prompts: list[str]
    columns: dict[str, list]
    cap: int  # max_new_tokens: the width of a process reward
    chat: bool = False  # prompts went through a chat template

    def prompts_of(self, responses: Responses) -> list[str]:
        """The prompt text of each answer."""
        return [self.prompts[i] for i in responses.index.tolist()]

    def responses_of(self, responses: Responses) -> list[str]:
        """The words of each answer, without special tokens; ``join(prompt, answer)`` is the whole text."""
        return decode_answers(self.tokenizer, responses, chat=self.chat)

    def columns_of(self, responses: Responses) -> dict[str, list]:
        """The extra columns of each answer's prompt."""
        index = responses.index.tolist()
        return {name: [values[i] for i in index] for name, values in self.columns.items()}

    def opinions(self, scorer: Scorer, responses: Responses) -> list[Tensor]:
        """Every reward's raw opinion of these answers."""
        columns = self.columns_of(responses)
        return scorer.opinions(self.prompts_of(responses), self.responses_of(responses), columns, self.cap)


def table(prompts: Sequence[str], responses: Sequence[str], **numbers: Sequence[float]) -> list[dict[str, Any]]:
    """Rows for ``samples.jsonl``."""
    rows = zip(prompts, responses, *numbers.values(), strict=True)
    return [dict(zip(("prompt", "response", *numbers), row, strict=True)) for row in rows]

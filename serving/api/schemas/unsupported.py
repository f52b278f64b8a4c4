"""Fields that OpenAI's API or its imitators know and this server does not serve yet.

Ignoring such a field would give an answer that isn't what was asked for, so it is refused
unless its value changes nothing. Fields known to nobody are ignored, as clients expect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "documents": ([],),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("auto", "none"),
    "functions": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "min_p": (0,),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "moderation": (),
    "n": (1,),
    "prediction": (),
    "presence_penalty": (0,),
    "prompt_logprobs": (),
    "reasoning_effort": ("none",),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "store": (False,),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("auto", "none"),
    "tools": ([],),
    "top_logprobs": (0,),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Field → values that ask for nothing; null always does."""


def first_unsupported(given: Mapping[str, Any]) -> str | None:
    """Return the first field of ``given`` that asks for something not served."""
    for name, value in given.items():
        if name in NEUTRAL and value is not None and not _is_neutral(name, value):
            return name
    return None


def _is_neutral(name: str, value: Any) -> bool:
    # True == 1 in Python, but not to someone who sends `"n": true`.
    return any(
        value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
        for neutral in NEUTRAL[name]
    )

"""From logits to tokens, each request by its own parameters and its own chance."""

from __future__ import annotations

import torch

from serving.engine.messages import SamplingParams, TokenLogprobs


def choose(
    logits: torch.Tensor, params: list[SamplingParams], draws: list[float]
) -> list[int | None]:
    """Choose one token per row.

    Args:
        logits: [S, vocabulary], any float dtype.
        params: how to choose, one per row; temperature 0 takes the highest logit.
        draws: one number in [0, 1) per row, from the request's own generator. A row's
            choice depends on its logits, parameters and draw only.

    Returns:
        Token ids; None where the row's highest logit is not a finite number.
    """
    logits = logits.float()
    # One pass serves greedy rows and finds NaN (it wins every max) and +inf.
    best, best_ids = logits.max(dim=-1)
    finite = torch.isfinite(best).tolist()
    chosen: list[int | None] = best_ids.tolist()
    for row, (how, draw) in enumerate(zip(params, draws, strict=True)):
        if not finite[row]:
            chosen[row] = None
        elif how.temperature > 0:
            chosen[row] = _sample(logits[row], how, draw)
    return chosen


def logprobs_of(logits: torch.Tensor, token: int, count: int) -> TokenLogprobs:
    """Log probabilities of ``token`` and of the ``count`` likeliest tokens; logits [vocabulary]."""
    logprobs = logits.float().log_softmax(dim=-1)
    values, ids = logprobs.topk(min(count, logprobs.numel()))
    return TokenLogprobs(float(logprobs[token]), tuple(ids.tolist()), tuple(values.tolist()))


def _sample(logits: torch.Tensor, how: SamplingParams, draw: float) -> int:
    """Inverse transform sampling over the candidates that top_k and then top_p leave.

    Returns:
        The first token at which the cumulated probability exceeds ``draw``.
    """
    # Subtracting the maximum first keeps tiny temperatures from overflowing to NaN.
    scaled = (logits - logits.max()) / how.temperature
    ids: torch.Tensor | None = None
    if 0 < how.top_k < scaled.numel():
        scaled, ids = scaled.topk(how.top_k)
    probabilities = scaled.softmax(dim=-1)
    if how.top_p < 1:
        probabilities, kept = _nucleus(probabilities, how.top_p)
        ids = kept if ids is None else ids[kept]
    cumulated = probabilities.double().cumsum(dim=-1)
    index = int(torch.searchsorted(cumulated, draw * float(cumulated[-1]), right=True))
    # draw < 1, but rounding may carry the product to the very end.
    index = min(index, cumulated.numel() - 1)
    return index if ids is None else int(ids[index])


def _nucleus(probabilities: torch.Tensor, top_p: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The fewest most probable tokens whose mass reaches ``top_p``, most probable first.

    Tokens below (1 - top_p) / n together weigh less than 1 - top_p, so none of them is in
    the nucleus: dropping them first leaves a few hundred to sort instead of a vocabulary.
    """
    floor = (1 - top_p) / probabilities.numel()
    candidates = (probabilities >= floor).nonzero().squeeze(-1)
    ordered, order = probabilities[candidates].sort(descending=True, stable=True)
    before = ordered.double().cumsum(dim=-1) - ordered
    count = max(int((before < top_p).sum()), 1)
    return ordered[:count], candidates[order[:count]]

"""The canary on the demo model: rounding of a busy engine, and weights that were changed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from lifecycle.drift import canary
from serving.engine.messages import Generate, SamplingParams, TokenLogprobs
from serving.text.codec import TextCodec

NOISE = (0.001, 0.003, 0.01)
"""Relative sizes of the changes tried on one matrix of one layer."""
_CROWD = 6


class CanaryBench:
    """One engine in this process, asked again and again.

    Args:
        directory: the demo model.
    """

    def __init__(self, directory: Path) -> None:
        # torch comes with these.
        from serving.engine.loading import ModelLoad
        from serving.engine.messages import Load
        from serving.loading.inventory import digests_of

        load = ModelLoad(
            Load(
                model_dir=str(directory),
                files=digests_of(directory),
                device="cpu",
                dtype="auto",
                max_slots=16,
                max_model_len=256,
                max_batch_tokens=512,
                threads=1,
            ),
            lambda _phase, _done, _total: None,
        )
        load.verify()
        self._engine, _ = load.start()
        self._model: Any = self._engine._runner.model  # type: ignore[attr-defined]
        self._codec = TextCodec.from_directory(directory)
        self._chance = random.Random(0)

    def ask(self, *, busy: bool = False, at_once: int = 4) -> dict[str, Any]:
        """Answer the canary prompts as the admin API does, alone or in a crowd."""
        top = SamplingParams(max_tokens=canary.MAX_TOKENS, top_logprobs=5)
        waiting = list(enumerate(canary.PROMPTS))
        answers: list[dict[str, Any]] = [{} for _ in canary.PROMPTS]
        crowd = under_way = 0
        while waiting or under_way:
            while waiting and under_way < at_once:
                index, prompt = waiting.pop(0)
                ids = self._codec.render_chat([{"role": "user", "content": prompt}])
                answers[index] = {n: [] for n in ("token_ids", "logprobs", "top_ids")}
                answers[index]["top_logprobs"] = []
                self._engine.add(Generate(f"canary-{index}", tuple(ids), top))
                under_way += 1
            while busy and crowd < _CROWD:
                ids = [self._chance.randrange(49_000) for _ in range(self._chance.randrange(5, 90))]
                other = SamplingParams(max_tokens=self._chance.randrange(3, 40), temperature=1.0)
                self._engine.add(Generate(f"crowd-{self._chance.random()}", tuple(ids), other))
                crowd += 1
            for output in self._engine.step().outputs:
                ended = output.finish_reason is not None
                name, _, number = output.request_id.partition("-")
                if name == "crowd":
                    crowd -= ended
                    continue
                under_way -= ended
                _take(answers[int(number)], output.token_ids, output.logprobs)
        self._finish()
        return {"answers": answers}

    def perturb(self, size: float) -> Any:
        """Change one matrix of a middle layer by noise of relative ``size``; the old values."""
        import torch

        weight = self._model.model.layers[15].mlp.down_proj.weight
        before = weight.detach().clone()
        torch.manual_seed(1)
        with torch.no_grad():
            weight += size * weight.std() * torch.randn_like(weight)
        return before

    def restore(self, before: Any) -> None:
        """Put the old values back."""
        import torch

        with torch.no_grad():
            self._model.model.layers[15].mlp.down_proj.weight.copy_(before)

    def _finish(self) -> None:
        while self._engine.busy:
            self._engine.step()


def _take(answer: dict[str, Any], ids: tuple[int, ...], logprobs: TokenLogprobs | None) -> None:
    answer["token_ids"] += ids
    if logprobs is not None:
        answer["logprobs"].append(logprobs.chosen)
        answer["top_ids"].append(logprobs.top_ids)
        answer["top_logprobs"].append(logprobs.top)


def measure(directory: Path, rounds: int) -> dict[str, float | bool]:
    """Verdicts on an idle and a busy engine, and on changed weights."""
    bench = CanaryBench(directory)
    reference = canary.reference_body(
        bench.ask(), {}, [bench.ask(at_once=size) for size in canary.CROWDS]
    )
    quiet = [canary.compare(reference, bench.ask(), {}) for _ in range(rounds)]
    crowded = [canary.compare(reference, bench.ask(busy=True), {}) for _ in range(rounds)]
    figures: dict[str, float | bool] = {
        "canary_false_alarms": sum(v.outcome == "alarm" for v in quiet + crowded),
        "canary_rounds": len(quiet + crowded),
        "canary_busy_mean_nats": max(v.mean_moved for v in crowded),
        "canary_busy_largest_nats": max(r.largest for v in crowded for r in v.results),
    }
    caught = []
    for size in NOISE:
        before = bench.perturb(size)
        verdict = canary.compare(reference, bench.ask(), {})
        bench.restore(before)
        figures[f"canary_noise_{size}_mean_nats"] = verdict.mean_moved
        figures[f"canary_noise_{size}_caught"] = verdict.outcome == "alarm"
        caught.append(verdict.outcome == "alarm")
    figures["canary_changed_weights_caught"] = sum(caught)
    return {name: v if isinstance(v, bool) else round(v, 5) for name, v in figures.items()}

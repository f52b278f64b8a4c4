"""A real engine process under good and bad requests."""

from __future__ import annotations

import os
import select
import signal
import struct
from pathlib import Path

import msgspec
import pytest

from serving.engine.messages import (
    Cancel,
    Generate,
    Hello,
    Proceed,
    Progress,
    Ready,
    RequestFailed,
    SamplingParams,
    Shutdown,
    StepOutput,
    TokenOutput,
    Verified,
)
from tests.support.engine_peer import EnginePeer, greedy, load_request, parent_of_engine
from tests.support.tiny_models import EOS, VOCABULARY

PROMPT = [5, 6, 8, 9]


def assert_serves(peer: EnginePeer) -> None:
    """It still answers, its slots are free and its books balance."""
    answer = peer.answers(greedy("after", PROMPT, 5))["after"]
    assert isinstance(answer, list) and len(answer) == 5
    stats = peer.idle_stats().stats
    assert (stats.kv_tokens_used, stats.integrity_errors) == (0, 0)


def test_a_load_tells_its_phases_digests_and_sizes(peer: EnginePeer, tiny_model: Path) -> None:
    request = load_request(tiny_model)
    ready = peer.load(request)
    assert isinstance(ready, Ready)
    assert (ready.device, ready.dtype, ready.max_model_len) == ("cpu", "float32", 128)
    assert (ready.vocab_size, ready.eos_token_ids) == (VOCABULARY, (EOS,))
    assert set(ready.seconds) == {"check", "read", "place", "warmup"}
    layers, kv_heads, size, positions = 3, 2, 8, 4 * 128
    assert ready.kv_bytes == layers * 2 * positions * kv_heads * size * 4
    stored = sum(f.size for f in request.files if f.path.endswith(".safetensors"))
    assert 0 < ready.weight_bytes <= stored

    hello, *_ = peer.said
    assert isinstance(hello, Hello) and hello.pid == peer.process.pid
    assert [m.files for m in peer.said if isinstance(m, Verified)] == [request.files]
    progress = [m for m in peer.said if isinstance(m, Progress)]
    assert list(dict.fromkeys(p.phase for p in progress)) == ["check", "read", "place", "warmup"]
    read = [p for p in progress if p.phase == "read"]
    total = sum(file.size for file in request.files)
    assert (read[-1].bytes_done, read[-1].bytes_total) == (total, total)


def test_it_does_not_serve_before_the_verification_is_on_record(
    peer: EnginePeer, tiny_model: Path
) -> None:
    peer.until(Hello)
    peer.send(load_request(tiny_model))
    peer.until(Verified)
    with pytest.raises(TimeoutError):
        peer.receive(timeout=1.5)
    peer.send(Proceed())
    peer.until(Ready)


def test_greedy_answers_are_the_same_alone_and_in_a_crowd(serving: EnginePeer) -> None:
    requests = [greedy(str(n), [n + 1] * (1 + 17 * n), 20) for n in range(9)]
    together = serving.answers(*requests)
    alone = {r.request_id: serving.answers(r)[r.request_id] for r in requests}
    assert together == alone
    assert all(isinstance(answer, list) and len(answer) == 20 for answer in alone.values())


def test_a_seed_gives_the_same_answer_whatever_else_runs(serving: EnginePeer) -> None:
    sampling = SamplingParams(max_tokens=20, temperature=1.5, top_p=0.95, seed=11, ignore_eos=True)
    seeded = Generate("seeded", tuple(PROMPT), sampling)
    alone = serving.answers(seeded)["seeded"]
    crowd = [
        Generate(
            str(n),
            (n + 3,) * 9,
            SamplingParams(max_tokens=30, temperature=2.0, seed=n, ignore_eos=True),
        )
        for n in range(3)
    ]
    assert serving.answers(*crowd, seeded)["seeded"] == alone
    other = msgspec.structs.replace(seeded, sampling=msgspec.structs.replace(sampling, seed=12))
    assert serving.answers(other)["seeded"] != alone


@pytest.mark.parametrize(
    ("request_sent", "names"),
    [
        (greedy("bad", []), "token_ids"),
        (greedy("bad", [1] * 512), "token_ids"),
        (greedy("bad", [VOCABULARY]), "token_ids"),
        (greedy("bad", [-1]), "token_ids"),
        (greedy("bad", PROMPT, 0), "max_tokens"),
        (greedy("bad", PROMPT, -5), "max_tokens"),
        (Generate("bad", (1,), SamplingParams(1, temperature=float("nan"))), "temperature"),
        (Generate("bad", (1,), SamplingParams(1, top_p=0.0)), "top_p"),
        (Generate("bad", (1,), SamplingParams(1, top_k=-2)), "top_k"),
    ],
)
def test_a_bad_request_fails_by_itself_and_names_the_field(
    serving: EnginePeer, request_sent: Generate, names: str
) -> None:
    answers = serving.answers(greedy("good", PROMPT, 6), request_sent)
    failure = answers["bad"]
    assert isinstance(failure, RequestFailed)
    assert names in failure.what and failure.code == "invalid_input"
    assert isinstance(answers["good"], list) and len(answers["good"]) == 6
    assert_serves(serving)


def raw_frame(fields: object) -> bytes:
    payload = msgspec.msgpack.encode(fields)
    return struct.pack(">I", len(payload)) + payload


@pytest.mark.parametrize(
    "sampling",
    [{"max_tokens": "many"}, {}, {"max_tokens": 1, "stop_token_ids": "x"}, None],
)
def test_a_request_with_fields_of_the_wrong_type_is_answered(
    serving: EnginePeer, sampling: object
) -> None:
    fields = {"type": "Generate", "request_id": "bad", "token_ids": [1], "sampling": sampling}
    serving.socket.sendall(raw_frame(fields))
    assert isinstance(serving.collect("bad")["bad"], RequestFailed)
    assert_serves(serving)


def test_max_tokens_beyond_the_context_ends_by_length(serving: EnginePeer) -> None:
    answer = serving.answers(greedy("long", [3] * 500, 10_000))["long"]
    assert isinstance(answer, list) and len(answer) == 12
    assert_serves(serving)


def outputs_of(peer: EnginePeer, name: str) -> list[TokenOutput]:
    return [
        output
        for message in peer.said
        if isinstance(message, StepOutput)
        for output in message.outputs
        if output.request_id == name
    ]


def test_cancel_in_queue_prefill_and_decode(serving: EnginePeer) -> None:
    decoding = [greedy(f"decode {n}", PROMPT, 500) for n in range(3)]
    serving.send(*decoding)
    while not all(outputs_of(serving, r.request_id) for r in decoding):
        serving.receive()
    # The fourth slot: 480 tokens take 16 steps or more. The fifth request has to queue.
    serving.send(greedy("prefill", [4] * 480, 20), greedy("queue", PROMPT, 20))
    serving.send(Cancel("queue"), Cancel("prefill"), Cancel("decode 1"), Cancel("unknown"))
    serving.collect("queue", "prefill", "decode 1")
    for name in ("queue", "prefill"):
        (only,) = outputs_of(serving, name)
        assert (only.finish_reason, only.token_ids) == ("cancelled", ())
    assert outputs_of(serving, "decode 1")[-1].finish_reason == "cancelled"
    serving.send(Cancel("decode 0"), Cancel("decode 2"))
    assert_serves(serving)


def test_an_idle_engine_has_a_heartbeat(serving: EnginePeer) -> None:
    first, second = serving.idle_stats(), serving.idle_stats()
    assert first.outputs == second.outputs == ()
    assert second.stats.kv_tokens_total == 4 * 512
    assert second.stats.device_memory_bytes > 0


def test_it_exits_with_success_when_told_to(mortal: EnginePeer) -> None:
    mortal.send(greedy("running", PROMPT, 400), Shutdown())
    assert mortal.process.wait(30) == 0


def test_it_exits_when_the_connection_ends_also_while_it_computes(mortal: EnginePeer) -> None:
    mortal.send(*[greedy(str(n), PROMPT, 500) for n in range(8)])
    mortal.until(StepOutput)
    mortal.socket.close()
    assert mortal.process.wait(30) == 0


def test_bytes_that_are_no_protocol_end_the_engine_with_a_reason(mortal: EnginePeer) -> None:
    mortal.socket.sendall(b"\xff" * 64)
    assert mortal.process.wait(30) == 1
    assert "FramingError" in mortal.log_path.read_text()


def test_signals_for_the_process_group_do_not_end_it(serving: EnginePeer) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(serving.process.pid, number)
    assert_serves(serving)


def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    with parent_of_engine(tmp_path) as (parent, engine_pid):
        engine = os.pidfd_open(engine_pid)
        parent.kill()
        parent.wait()
        try:
            # Readable when the process has ended, whoever reaps it.
            assert select.select([engine], [], [], 30)[0]
        finally:
            os.close(engine)


def test_its_log_is_json_and_holds_no_tokens(mortal: EnginePeer) -> None:
    mortal.answers(greedy("r", [77] * 9 + [VOCABULARY], 4), greedy("s", [77] * 9, 4))
    mortal.send(Shutdown())
    mortal.process.wait(30)
    entries = [msgspec.json.decode(line) for line in mortal.log_path.read_text().splitlines()]
    assert [entry["event"] for entry in entries] == ["model ready", "serving", "engine ends"]
    everywhere = {"event", "level", "pid", "service", "ts"}
    own = set().union(*entries) - everywhere
    assert own == {"architecture", "self_check", "why"}

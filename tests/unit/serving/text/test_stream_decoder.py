from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from serving.text.codec import TextCodec

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
words = st.text(alphabet=st.characters(codec="utf-8", exclude_characters=REPLACEMENT), max_size=30)
emoji = st.text(alphabet="a 🏴‍☠️😀é漢字\n", max_size=20)


def stream(codec: TextCodec, ids: list[int], prompt: list[int]) -> list[str]:
    decoder = codec.stream_decoder(prompt)
    return [*(decoder.push([token]) for token in ids), decoder.flush()]


@settings(deadline=None)
@given(text=words | emoji, prompt=words | emoji)
def test_pieces_join_to_the_text_and_never_hold_half_a_character(
    codec: TextCodec, text: str, prompt: str
) -> None:
    ids = codec.encode(text, add_special_tokens=False)
    assume(codec.decode(ids) == text)  # a vocabulary may lack some byte
    pieces = stream(codec, ids, codec.encode(prompt, add_special_tokens=False))
    assert "".join(pieces) == text
    assert not any(REPLACEMENT in piece for piece in pieces)


@settings(deadline=None)
@given(text=emoji, cut=st.integers(0, 60))
def test_an_answer_that_ends_inside_a_character_leaves_it_out(
    codec: TextCodec, text: str, cut: int
) -> None:
    ids = codec.encode(text, add_special_tokens=False)[:cut]
    whole = codec.decode(ids)
    assert "".join(stream(codec, ids, [])) == whole.rstrip(REPLACEMENT)


@settings(deadline=None)
@given(text=emoji, cut=st.integers(0, 60))
def test_a_prompt_that_ends_inside_a_character_does_not_leak(
    codec: TextCodec, text: str, cut: int
) -> None:
    ids = codec.encode(text, add_special_tokens=False)
    prompt, answer = ids[:cut], ids[cut:]
    shown = codec.decode(prompt).rstrip(REPLACEMENT)
    assert shown + "".join(stream(codec, answer, prompt)) == (shown if not answer else text)


def test_special_tokens_are_not_shown(codec: TextCodec) -> None:
    ids = [*codec.encode("yes", add_special_tokens=False), 2, 0]
    assert "".join(stream(codec, ids, [1])) == "yes"


def test_several_tokens_at_once_give_the_same_text(codec: TextCodec) -> None:
    ids = codec.encode("Iron 🏴‍☠️ works, 漢字", add_special_tokens=False)
    decoder = codec.stream_decoder()
    assert decoder.push(ids[:7]) + decoder.push(ids[7:]) + decoder.flush() == codec.decode(ids)


def sentencepiece_like() -> TextCodec:
    """A tokenizer with byte fallback, whose decoder strips the first word's space."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁hello", "▁world", "▁"]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(pieces)},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return TextCodec(tokenizer, None)


def test_the_space_before_a_word_is_kept_after_a_prompt() -> None:
    codec = sentencepiece_like()
    hello, world = 257, 258
    assert "".join(stream(codec, [world], [hello])) == " world"
    assert "".join(stream(codec, [hello, world], [])) == "hello world"


@settings(deadline=None)
@given(text=st.text(alphabet="😀é漢", max_size=6))
def test_characters_spread_over_byte_tokens_come_whole(text: str) -> None:
    codec = sentencepiece_like()
    ids = [257, *(1 + byte for byte in text.encode())]
    pieces = stream(codec, ids, [])
    assert "".join(pieces) == "hello" + text
    assert not any(REPLACEMENT in piece for piece in pieces)


@settings(deadline=None)
@given(ids=st.lists(st.integers(1, 258), max_size=30))
def test_bytes_that_are_no_text_never_fail(ids: list[int]) -> None:
    stream(sentencepiece_like(), ids, ids[:3])

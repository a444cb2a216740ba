"""Text out of tokens, piece by piece: nothing is lost, and no stop or part of one gets out."""

import random

import pytest
from models.text_stream import TextStream


def pieces(stream, tokens):
    found = [stream.step(token) for token in tokens]
    return [*found, stream.rest()]


def expected(text, stops):
    """The text before the first stop."""
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]


TEXT = "def add_1_2(x):\n    return x + 1 * 2  # größer, 日本語 🐱🐱\n"


def test_pieces_add_up_to_the_text(tokenizer):
    tokens = tokenizer.encode(TEXT).ids
    found = pieces(TextStream(tokenizer), tokens)
    assert "".join(found) == TEXT and sum(map(bool, found)) > 10
    assert not any("\ufffd" in piece for piece in found)


def test_half_a_character_at_the_end_is_given_out_last(tokenizer):
    tokens = tokenizer.encode("a🐱").ids[:-1]
    *first, last = pieces(TextStream(tokenizer), tokens)
    assert "".join(first) == "a" and last == tokenizer.decode(tokens)[1:] and "\ufffd" in last


def test_without_a_tokenizer_tokens_are_numbers():
    assert pieces(TextStream(None), [3, 14, 1]) == [" 3", " 14", " 1", ""]
    assert pieces(TextStream(None, ["4 1"]), [3, 14, 1]) == [" 3", " 1", "", ""]


@pytest.mark.parametrize("number", range(40))
def test_a_stop_ends_the_text_wherever_it_falls(tokenizer, number):
    """Stops are pieces of the text and what is nearly one, also one in another."""
    rng = random.Random(number)
    stops = []
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(TEXT) - 1)
        stop = TEXT[at : at + rng.randint(1, 9)]
        stops.append(stop + rng.choice(["", "", "~", stop]))
    stream = TextStream(tokenizer, stops)
    tokens, given = tokenizer.encode(TEXT).ids, ""
    wanted = expected(TEXT, stops)
    for token in tokens:
        given += stream.step(token)
        assert wanted.startswith(given)
    given += stream.rest()
    assert given == wanted and stream.stopped == (wanted != TEXT)


def test_what_is_held_back_comes_when_it_is_no_stop():
    stream = TextStream(None, [" 1 2 3"])
    assert [stream.step(token) for token in (1, 2, 1, 2, 4)] == ["", "", " 1 2", "", " 1 2 4"]
    assert stream.step(1) == "" and stream.rest() == " 1" and not stream.stopped
    stream = TextStream(None, ["aa", " 7"])
    assert stream.step(7) == "" and stream.stopped and stream.step(8) == stream.rest() == ""

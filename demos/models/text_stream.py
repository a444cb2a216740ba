"""Text out of tokens, as they come."""

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class TextStream:
    """The pieces of a text, token by token; tokens' numbers where there is no tokenizer.

    A piece comes when its characters are whole. Before the first of `stops` the text ends: it is
    not given out, nor is what could be its beginning, until that turns out to be none.
    """

    def __init__(self, tokenizer: Tokenizer | None, stops: Sequence[str] = ()):
        self.tokenizer, self.stops = tokenizer, stops
        self.stopped = False  # whether one of `stops` was met; there is no text behind it
        self._decoder = DecodeStream(skip_special_tokens=True)
        self._tokens: list[int] = []
        self._decoded = 0  # characters that the tokens have given
        self._held = ""  # of these, what is not given out yet

    def step(self, token: int) -> str:
        """What the next token lets be given out; it may be nothing."""
        if self.stopped:
            return ""
        if self.tokenizer is None:
            return self._give(f" {token}")
        self._tokens.append(token)
        piece = self._decoder.step(self.tokenizer, token) or ""
        self._decoded += len(piece)
        return self._give(piece)

    def rest(self) -> str:
        """What is left when no token comes any more: half a character, the beginning of a stop."""
        if self.stopped:
            return ""
        piece = ""
        if self.tokenizer is not None:
            piece = self.tokenizer.decode(self._tokens)[self._decoded :]
        piece = self._give(piece)
        if self.stopped:
            return piece
        piece, self._held = piece + self._held, ""
        return piece

    def _give(self, piece: str) -> str:
        self._held += piece
        found = [at for stop in self.stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            return self._held[: min(found)]
        kept = max((self._overlap(stop) for stop in self.stops), default=0)
        at = len(self._held) - kept
        given, self._held = self._held[:at], self._held[at:]
        return given

    def _overlap(self, stop: str) -> int:
        """How many characters at the end could be the beginning of this one."""
        longest = min(len(stop) - 1, len(self._held))
        return next((n for n in range(longest, 0, -1) if self._held.endswith(stop[:n])), 0)

"""Text to tokens to batches.

The default text is the source of the Python standard library, which is on every machine that can
run this program (licence: PSF).
"""

import functools
import glob
import hashlib
import itertools
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from models.checkpoint import END_OF_TEXT

# Folders of the standard library that are left out: tests, installed packages, and `encodings`,
# which is tables of characters rather than code.
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings"}
_PIECE = 1 << 18  # characters given to the tokenizer at once; bounds its memory
_TOGETHER = 256  # documents whose pieces it encodes on all cores at once
_COLUMN = "text"  # of a Parquet file, as data sets for language models have it


class DataError(ValueError):
    """The text cannot be used; the message is one sentence."""


def read_documents(pattern: str | None) -> list[str]:
    """The texts of a file, of all files under a folder, or of all files that match a glob.

    None: the standard library. Files that are not UTF-8 text are passed over. Of a Parquet file,
    `*.parquet`, each row's "text" is a document. The order is by the hash of the path within the
    folder, and by rows: the same everywhere, and unrelated to the contents.

    Raises:
        DataError: There is no text there, or a Parquet file cannot be read.
    """
    root = Path(pattern or sysconfig.get_path("stdlib"))
    if pattern is None:
        files = [path for path in root.rglob("*.py") if not _LEFT_OUT & set(_within(path, root))]
    elif root.is_dir():
        files = list(root.rglob("*"))
    elif root.is_file():
        files, root = [root], root.parent
    else:
        files = [Path(name) for name in glob.glob(pattern, recursive=True)]
    names = {path: "/".join(_within(path, root)) for path in files if path.is_file()}
    files = sorted(names, key=lambda path: hashlib.sha256(names[path].encode()).digest())
    documents = [text for path in files for text in _read_texts(path) if text]
    if not files and not root.exists():
        raise DataError(f"--data {pattern or root}: there is no such file, and none that matches")
    if not documents:
        raise DataError(f"--data {pattern or root}: there is no UTF-8 text there")
    return documents


def split(documents: list[str], held_out: float) -> tuple[list[str], list[str]]:
    """Documents to train on, and those at the end: that share of the characters, held out."""
    left = int(sum(map(len, documents)) * (1 - held_out))
    for index, document in enumerate(documents):
        if left < len(document):
            train = [*documents[:index], document[:left]]
            return train, [document[left:], *documents[index + 1 :]]
        left -= len(document)
    return documents, []


def split_between(documents: list[str], held_out: float) -> tuple[list[str], list[str]]:
    """The same of whole documents: parted between two, where it is nearest to that share.

    So no document has its beginning among what is trained on, and its end among what is held out.
    One alone is cut, as `split` does.
    """
    if len(documents) == 1:
        return split(documents, held_out)
    ends = list(itertools.accumulate(map(len, documents)))
    wanted = ends[-1] * (1 - held_out)
    count = min(range(1, len(documents)), key=lambda count: abs(ends[count - 1] - wanted))
    return documents[:count], documents[count:]


def train_tokenizer(documents: list[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE tokenizer in the manner of GPT-2: any text becomes tokens, and back."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_pieces(documents), trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, documents: list[str]) -> Tensor:
    """All documents as one int64 sequence [tokens], each behind an end-of-text token."""
    end = [tokenizer.token_to_id(END_OF_TEXT)]
    parts = []
    for first in range(0, len(documents), _TOGETHER):
        pieces = [list(_pieces([document])) for document in documents[first : first + _TOGETHER]]
        encodings = iter(tokenizer.encode_batch([text for texts in pieces for text in texts]))
        for texts in pieces:
            parts.append(torch.tensor(end))
            parts += [torch.tensor(next(encodings).ids, dtype=torch.int64) for _ in texts]
    return torch.cat(parts)


class Batches:
    """Random access to the batches of a training run: batch i is a function of (seed, i).

    An epoch is every sequence of `length` tokens, from an offset of its own, in an order of its
    own. Nothing but the number of the next batch has to be kept to go on where a run stopped.
    """

    def __init__(self, tokens: Tensor, batch: int, length: int, seed: int):
        self.tokens, self.batch, self.length, self.seed = tokens, batch, length, seed
        self.per_epoch = (tokens.numel() - 1) // length - 1  # one less, for the offset
        if self.per_epoch < 1:
            raise DataError(
                f"--data: {tokens.numel()} tokens to train on are too few for sequences of {length}"
            )
        self._starts = functools.lru_cache(maxsize=2)(self._epoch)

    def _epoch(self, epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed((self.seed << 20) + epoch)
        offset = torch.randint(self.length, (1,), generator=generator)
        starts = torch.randperm(self.per_epoch, generator=generator) * self.length + offset
        return starts.to(self.tokens.device)

    def __getitem__(self, index: int) -> Tensor:
        """Batch `index`: [batch, length + 1] tokens; each but the last predicts the next."""
        first = index * self.batch
        parts, wanted = [], self.batch
        while wanted:
            epoch, position = divmod(first + self.batch - wanted, self.per_epoch)
            parts.append(self._starts(epoch)[position : position + wanted])
            wanted -= parts[-1].numel()
        within = torch.arange(self.length + 1, device=self.tokens.device)
        return self.tokens[torch.cat(parts)[:, None] + within]


def evaluation_batches(tokens: Tensor, batch: int, length: int) -> list[Tensor]:
    """A held-out text from start to end in batches of up to [batch, length + 1]."""
    count = (tokens.numel() - 1) // length
    if count < 1:
        raise DataError(
            f"--data: {tokens.numel()} held-out tokens are too few for sequences of {length}"
        )
    return list(tokens[: count * length + 1].unfold(0, length + 1, length).split(batch))


def _within(path: Path, root: Path) -> tuple[str, ...]:
    """The parts of a path below its folder."""
    return path.relative_to(root).parts if path.is_relative_to(root) else path.parts


def _read_texts(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        return _read_rows(path)
    try:
        return [path.read_text(encoding="utf-8")]
    except (UnicodeDecodeError, OSError):
        return []


def _read_rows(path: Path) -> list[str]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise DataError(
            f"--data {path}: pyarrow, which reads Parquet, is not installed (pip install pyarrow)"
        ) from None
    texts: list[str | None] = []
    try:
        file = parquet.ParquetFile(path)
        names = file.schema_arrow.names
        for batch in file.iter_batches(columns=[_COLUMN]) if _COLUMN in names else ():
            texts += batch.column(_COLUMN).to_pylist()
    except (ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise DataError(f"--data {path}: not a Parquet file ({reason})") from error
    if _COLUMN not in names:
        raise DataError(f"--data {path}: has no column {_COLUMN!r}, but {', '.join(names)}")
    wrong = next((text for text in texts if not isinstance(text, str | None)), None)
    if wrong is not None:
        raise DataError(f"--data {path}: {_COLUMN!r} must be strings, got {wrong!r:.40}")
    return [text for text in texts if text is not None]


def _pieces(documents: list[str]) -> Iterator[str]:
    for document in documents:
        for start in range(0, len(document), _PIECE):
            yield document[start : start + _PIECE]

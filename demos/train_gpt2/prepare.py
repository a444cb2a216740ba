"""Makes of text what the trainer reads: files of tokens, and the tokenizer.

    python -m demos.train_gpt2.prepare --data my_text.txt --out data/mine --vocabulary 4096
    python -m demos.train_gpt2.prepare --data "docs/**/*.md" --out data/docs --tokenizer gpt2.json
    python -m demos.train_gpt2.prepare --data "web/*.parquet" --out data/web --tokenizer gpt2.json

The folder --out gets train.bin, eval.bin and tokenizer.json; of questions, with --hellaswag
hellaswag_val.jsonl, hellaswag.bin. A .bin file is 256 int32, of which the first three are 20240520,
1 and the number of tokens, and the tokens as uint16; of a vocabulary above 65536, 20240801 and 7,
and uint32. A document is a file, or the "text" of a row of Parquet (which wants pyarrow), and
begins with <|endoftext|>; eval.bin has the last ones, whole, of about 5 % of the characters, or of
one alone its end. Questions are llm.c's evaluation file: hellaswag.h has the format. Nothing is
fetched.
"""

import argparse
import json
import shutil
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models import checkpoint, data
from models.command_line import number
from tokenizers import Tokenizer
from torch import Tensor

HEADER_INTS = 256
NARROW, WIDE = (20240520, 1), (20240801, 7)  # magic and version: of uint16, of uint32
QUESTIONS, START_OF_QUESTION = (20240522, 1), 65535
HELD_OUT = 0.05


def write_tokens(path: Path, tokens: Tensor, vocabulary: int) -> None:
    """Writes a .bin file, whole or not at all.

    Raises:
        ValueError: The header's number of tokens, an int32, has no room for them.
    """
    if len(tokens) >= 2**31:
        raise ValueError(f"{path}: must have fewer than 2^31 tokens, got {len(tokens)}")
    wide = vocabulary > 1 << 16
    header = struct.pack("<3i", *(WIDE if wide else NARROW), len(tokens)).ljust(
        4 * HEADER_INTS, b"\0"
    )
    content = tokens.numpy().astype("<u4" if wide else "<u2").tobytes()
    checkpoint.write(path, lambda scratch: scratch.write_bytes(header + content))


def load_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer.json whose vocabulary has what parts documents.

    Raises:
        ValueError: It cannot be read, or lacks it.
    """
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # what the library raises has no narrower class
        raise ValueError(f"{path}: not a tokenizer ({str(error).splitlines()[0]})") from error
    if tokenizer.token_to_id(checkpoint.END_OF_TEXT) is None:
        raise ValueError(f"{path}: has no token {checkpoint.END_OF_TEXT}, which parts documents")
    return tokenizer


def read_questions(path: Path) -> list[tuple[str, list[str], int]]:
    """The contexts, endings and answers of HellaSwag's lines of JSON: ctx, endings, label.

    Raises:
        ValueError: A line has not these, or there is none.
    """
    questions = []
    # (Not splitlines: what it takes for ends of lines may stand in a line of JSON.)
    for count, line in enumerate(path.read_text(encoding="utf-8").rstrip().split("\n"), 1):
        try:
            entry = json.loads(line)
            context, endings, answer = entry["ctx"], entry["endings"], int(entry["label"])
            sound = isinstance(context, str) and all(isinstance(ending, str) for ending in endings)
            if not sound or not 0 <= answer < len(endings):
                raise ValueError("its label must be the number of one of its endings")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: line {count} is no question ({error!r})") from error
        questions.append((context, endings, answer))
    return questions


def encode_question(
    tokenizer: Tokenizer, number: int, context: str, endings: list[str], answer: int
) -> list[int]:
    """A question as the evaluation file's words of 16 bits."""
    words = [answer, len(endings)]
    for text in (context, *(" " + ending for ending in endings)):
        tokens = tokenizer.encode(text).ids
        words += [len(tokens), *tokens]
    return [START_OF_QUESTION, 2 * (len(words) + 3), number, *words]


def write_questions(path: Path, tokenizer: Tokenizer, source: Path) -> int:
    """Writes an evaluation file, whole or not at all; returns how many questions it has.

    Raises:
        ValueError: The questions cannot be read, or are more or longer than the format has room
            for.
    """
    if max(tokenizer.get_vocab().values()) >= START_OF_QUESTION:
        raise ValueError(
            f"{path}: tokens must be below {START_OF_QUESTION}, which the format needs"
        )
    questions = [
        encode_question(tokenizer, number, *question)
        for number, question in enumerate(read_questions(source))
    ]
    longest = max(question[1] for question in questions)
    if len(questions) >= 1 << 16 or longest >= 1 << 16:
        raise ValueError(
            f"{source}: must be fewer than 65536 questions of fewer than 65536 bytes, got "
            f"{len(questions)} and {longest}"
        )
    header = struct.pack("<4i", *QUESTIONS, len(questions), longest).ljust(4 * HEADER_INTS, b"\0")
    content = b"".join(struct.pack(f"<{len(words)}H", *words) for words in questions)
    checkpoint.write(path, lambda scratch: scratch.write_bytes(header + content))
    return len(questions)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 0; 1 where something cannot be read or written; 2 of bad arguments."""
    parser = argparse.ArgumentParser(prog="prepare", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data", help="file, folder or glob, of text or Parquet (default: the standard library)"
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder of what is made")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json (default: one is trained)")
    parser.add_argument(
        "--vocabulary", type=number(int, 257), default=4096, help="tokens of one that is trained"
    )
    parser.add_argument("--hellaswag", type=Path, help="questions, lines of JSON as HellaSwag's")
    options = parser.parse_args(arguments)
    try:
        prepare(options)
    except (ValueError, OSError) as error:
        print(f"prepare: {error}", file=sys.stderr)
        return 1
    return 0


def prepare(options: argparse.Namespace) -> None:
    """Reads, encodes and writes."""
    train, held_out = data.split_between(data.read_documents(options.data), HELD_OUT)
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / checkpoint.TOKENIZER
    if options.tokenizer:
        tokenizer = load_tokenizer(options.tokenizer)
        if options.tokenizer.resolve() != kept.resolve():
            shutil.copyfile(options.tokenizer, kept)
    else:
        tokenizer = data.train_tokenizer(train, options.vocabulary)
        tokenizer.save(str(kept))
    # Numbers may be left out: what they have to be below counts, and not how many tokens there are.
    vocabulary = max(tokenizer.get_vocab().values()) + 1
    for name, documents in (("train", train), ("eval", held_out)):
        tokens = data.encode(tokenizer, documents)
        write_tokens(options.out / f"{name}.bin", tokens, vocabulary)
        print(f"{options.out / name}.bin: {len(tokens)} tokens of {len(documents)} documents")
    print(f"{kept}: a vocabulary of {vocabulary}")
    if options.hellaswag:
        count = write_questions(options.out / "hellaswag.bin", tokenizer, options.hellaswag)
        print(f"{options.out / 'hellaswag.bin'}: {count} questions")


if __name__ == "__main__":
    sys.exit(main())

"""Copies text to train on: the standard library's, and that of installed packages that are free.

    python -m demos.train_gpt2.gather --out data/texts --list data/licences.md
    python -m demos.train_gpt2.prepare --data data/texts --out data/python --vocabulary 32768

The sources and documents of the running interpreter's library and of packages beside it, of which
every licence that their metadata names is one of `FREE`: permissive ones, and the MPL. Each package
gets a folder in --out; texts that are there twice are copied once, tables of numbers and very long
files not at all. --packages chooses among them, by name. --list gets a table of names, versions,
licences and sizes. Nothing is fetched.
"""

import argparse
import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models.command_line import number

KINDS = {".py", ".pyi", ".md", ".rst", ".txt"}
# Packages of their own, whose licences their copies here do not say; tables of characters.
LEFT_OUT = {"site-packages", "dist-packages", "_vendor", "__pycache__", "encodings"}
SHORTEST, LONGEST = 200, 200_000  # characters of a file
MOST_DIGITS = 0.2  # of a file's characters; above, it is a table

# By their SPDX identifier, the last part of their classifier, or what stands for them in the
# metadata of packages without either.
FREE = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "CNRI-Python", "ISC"),
    *("MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Unlicense", "Zlib"),
    *("Apache Software License", "BSD License", "ISC License (ISCL)", "MIT License"),
    *("Mozilla Public License 2.0 (MPL 2.0)", "Python Software Foundation License"),
    *("Apache 2.0", "Apache 2.0 License", "BSD"),
}


def licence_of(package: metadata.Distribution) -> str:
    """What a package's metadata says: an SPDX expression, else classifiers, else a name."""
    facts = package.metadata
    expression = facts.get("License-Expression") or ""
    classifiers = [
        text.split("::")[-1].strip()
        for text in facts.get_all("Classifier") or []
        if text.startswith("License ::") and not text.endswith("OSI Approved")
    ]
    return expression or " AND ".join(classifiers) or (facts.get("License") or "").strip()


def is_free(licence: str) -> bool:
    """Whether all licences of an expression, or one of those joined by OR, are in FREE."""
    return all(
        any(name.strip(" ()") in FREE for name in part.split(" OR "))
        for part in re.split(r" AND (?![^(]*\))", licence)
    )


def texts_of(paths: Iterable[tuple[Path, Path]], seen: set[bytes]) -> Iterator[tuple[Path, str]]:
    """What to keep of (name, file): text of a fitting length that was not seen before."""
    for name, path in sorted(paths):
        if path.suffix not in KINDS or LEFT_OUT & set(name.parts) or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        digest = hashlib.sha256(text.encode()).digest()
        fits = SHORTEST <= len(text) <= LONGEST and digest not in seen
        if fits and sum(map(str.isdigit, text)) <= MOST_DIGITS * len(text):
            seen.add(digest)
            yield name, text


def sources(
    wanted: set[str] | None = None,
) -> Iterator[tuple[str, str, str, list[tuple[Path, Path]]]]:
    """Name, version, licence and files of the standard library and of each free package.

    Of `wanted`, names in lower case, if it is given: "python" is the standard library.
    """
    root = Path(sysconfig.get_path("stdlib"))
    if wanted is None or "python" in wanted:
        files = [(path.relative_to(root), path) for path in root.rglob("*")]
        yield "Python", sys.version.split()[0], "PSF-2.0", files
    packages = {package.name.lower(): package for package in metadata.distributions()}
    for lower, package in sorted(packages.items()):
        if wanted is not None and lower not in wanted:
            continue
        licence = licence_of(package)
        if is_free(licence):
            files = [(Path(str(f)), Path(str(package.locate_file(f)))) for f in package.files or []]
            inside = [(name, path) for name, path in files if ".." not in name.parts]
            yield package.name, package.version, licence, inside


def gather(out: Path, least: int, wanted: set[str] | None = None) -> list[str]:
    """Copies the texts; returns lines of a Markdown table, the largest package first.

    Raises:
        ValueError: One of `wanted` is not there, or not free.
    """
    seen: set[bytes] = set()
    rows = []
    missing = set(wanted or ())
    for name, version, licence, files in sources(wanted):
        missing.discard(name.lower())
        texts = list(texts_of(files, seen))
        size = sum(len(text) for _, text in texts)
        if size < least:
            continue
        for path, text in texts:
            copy = out / name / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text, encoding="utf-8")
        rows.append((size, f"| {name} {version} | {licence} | {len(texts)} | {size / 1e6:.1f} |"))
    if missing:
        raise ValueError(f"--packages: none that is free is called {', '.join(sorted(missing))}")
    head = ["| package | licence | files | million characters |", "|---|---|---|---|"]
    return head + [row for _, row in sorted(rows, reverse=True)]


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 0; 1 where something cannot be written; 2 of bad arguments."""
    parser = argparse.ArgumentParser(prog="gather", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="an empty or new folder")
    parser.add_argument("--list", type=Path, help="a file: the table of packages and licences")
    parser.add_argument(
        "--least",
        type=number(int, 0),
        default=250_000,
        help="characters of a package that is worth it",
    )
    parser.add_argument("--packages", help="names, with commas between them (default: all)")
    options = parser.parse_args(arguments)
    wanted = {name.lower() for name in options.packages.split(",")} if options.packages else None
    try:
        if options.out.is_dir() and any(options.out.iterdir()):
            raise FileExistsError(f"--out {options.out}: must be empty, or not there")
        lines = gather(options.out, options.least, wanted)
        if options.list:
            options.list.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except (ValueError, OSError) as error:
        print(f"gather: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())

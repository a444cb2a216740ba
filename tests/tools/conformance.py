"""Compares the simulator with the hardware, function by function of the seam.

Each `tests/conformance/*.cu` is a program that launches small kernels and records what they wrote.
What a GPU wrote is kept in `tests/conformance/golden`, one file for each topic (the programs
`topic.cu` and `topic_*.cu`); what the simulator writes is compared with it.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from build_tools import cuda, settings, simulator
from build_tools.settings import ROOT, BuildError
from tests.tools import golden
from tests.tools.environment import environment
from tests.tools.golden import Record

FOLDER = ROOT / "tests/conformance"
GOLDEN = FOLDER / "golden"
SEAM = ROOT / "csrc/include/kittens/arch"
POLICIES = ("eager", "lazy", "random:1")
GPU = "gpu"
WHOLE = "whole.zip"  # all values of all records, for who wants to see more of a difference
TIMEOUT_SECONDS = 300
PRINTED = 40  # differences
REGENERATE = "python3 -m build_tools conformance --regenerate"
HEADER = """# What {gpu} answered to {programs}.
# Made by `{command}`;
# tests/conformance/README.md says how to read it.
"""

Records = dict[str, Record]


def programs(topic: str = "") -> list[str]:
    """Returns the names of the programs, of one topic or of all of them."""
    names = sorted(path.stem for path in FOLDER.glob("*.cu"))
    return [name for name in names if topic in ("", topic_of(name))]


def topics() -> list[str]:
    """Returns the topics, each of which has a golden file."""
    return sorted({topic_of(name) for name in programs()})


def topic_of(program: str) -> str:
    """Returns the topic of a program: `wgmma` of `wgmma_bf16`."""
    return program.split("_")[0]


def golden_path(topic: str, folder: Path = GOLDEN) -> Path:
    """Returns where the answers to a topic's programs are kept."""
    return folder / f"{topic}.txt"


def build(where: str) -> dict[str, Path]:
    """Builds the programs and returns their executables.

    Args:
        where: GPU, or anything else for the simulator.
    """
    names = programs()
    builder = cuda.build_tests if where == GPU else simulator.build_tests
    return dict(zip(names, builder([FOLDER / f"{name}.cu" for name in names]), strict=True))


def ask(name: str, executable: Path, where: str) -> Records:
    """Runs a program and returns its records.

    Args:
        name: The program.
        executable: What it was built to.
        where: A policy of the simulator, or GPU.

    Raises:
        BuildError: The program failed; what it printed is in the message.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "records")
        setting = {} if where == GPU else {"KITTENS_SIM": where}
        try:
            done = subprocess.run(
                [executable],
                env=environment(**setting, KITTENS_RECORDS=str(path)),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=TIMEOUT_SECONDS,
            )
        except subprocess.TimeoutExpired as stopped:
            raise BuildError(
                f"conformance: {name} ({where}) has not ended after {TIMEOUT_SECONDS} s"
            ) from stopped
        lines = [line for line in done.stdout.splitlines() if not line.startswith("ok ")]
        if done.returncode != 0 or not path.is_file():
            raise BuildError(f"conformance: {name} ({where}) failed:\n" + "\n".join(lines))
        return golden.parse_records(path.read_bytes())


def ask_all(executables: dict[str, Path], where: str) -> dict[str, Records]:
    """Runs programs, as many at a time as the place can, and returns their records by topic."""
    with ThreadPoolExecutor(1 if where == GPU else settings.jobs()) as pool:
        runs = {name: pool.submit(ask, name, path, where) for name, path in executables.items()}
        answers: dict[str, Records] = {}
        for name, one in runs.items():
            records = answers.setdefault(topic_of(name), {})
            twice = sorted(records.keys() & one.result().keys())
            if twice:
                raise BuildError(f"conformance: two programs have a record {', '.join(twice)}")
            records |= one.result()
    return answers


def differences(topic: str, answers: Records, folder: Path = GOLDEN) -> list[str]:
    """Returns how the answers to a topic's programs differ from the golden file.

    Raises:
        BuildError: There is no golden file.
    """
    path = golden_path(topic, folder)
    if not path.is_file():
        raise BuildError(
            f"conformance: no golden file {path}: run `{REGENERATE}` on an H200, "
            f"and copy what it writes to {GOLDEN.relative_to(ROOT)}"
        )
    kept = golden.parse(path.read_text())
    found = [
        f"{name}: not in {path.name}: regenerate it with `{REGENERATE}`"
        for name in answers
        if name not in kept
    ]
    found += [f"{name}: no program records it any more" for name in kept if name not in answers]
    shared = [name for name in answers if name in kept]
    found += [text for name in shared if (text := golden.compare(answers[name], kept[name]))]
    return found


def seam_functions(folder: Path = SEAM) -> set[str]:
    """Returns the functions of the seam: those that the twins for the device define."""
    functions: set[str] = set()
    for path in (folder / "ptx").glob("*.cuh"):
        inside = r"^namespace detail \{.*?^\}  // namespace detail$"
        text = re.sub(inside, "", path.read_text(), flags=re.M | re.S)
        functions |= set(re.findall(r"^KITTENS_(?:DEVICE|INLINE) .*?\b(\w+)\(", text, re.M))
    return functions - {"__syncthreads"}


def called_functions() -> set[str]:
    """Returns the words of the programs' code: comments and what is in quotes left out."""
    names = "arch/pair_cases.h", "arch/wgmma_cases.h", "tensor_copies.h"
    shared = [ROOT / "tests/kittens" / name for name in names]
    files = [*FOLDER.glob("*.cu"), *FOLDER.glob("*.h"), *shared]
    text = "\n".join(re.sub(r'//[^\n]*|"[^"\n]*"', "", path.read_text()) for path in files)
    return set(re.findall(r"\barch::(\w+)", text))


def main(arguments: list[str]) -> int:
    """Runs the command: compares, or asks a GPU.

    Returns:
        An exit status: 0 if the simulator answers as the hardware does.
    """
    parser = argparse.ArgumentParser(prog="python -m build_tools conformance")
    parser.add_argument("--regenerate", action="store_true", help="ask the GPU of this machine")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where --regenerate writes")
    parser.add_argument("--golden", type=Path, default=GOLDEN, metavar="FOLDER", help="other ones")
    parser.add_argument("--policy", default=POLICIES[0], help=f"the simulator's: {POLICIES}")
    options = parser.parse_args(arguments)
    if options.regenerate:
        return regenerate(options.out or GOLDEN, options.golden)
    answers = ask_all(build(options.policy), options.policy)
    whole = options.golden / WHOLE
    if whole.is_file():
        return _report(against_whole(answers, whole), answers)
    found = [
        text for topic in topics() for text in differences(topic, answers[topic], options.golden)
    ]
    return _report(found, answers)


def regenerate(out: Path, old: Path = GOLDEN) -> int:
    """Asks the GPU, writes golden files, and shows what differs from the old ones and here.

    Args:
        out: Where to write.
        old: The folder of the golden files to compare with.

    Returns:
        An exit status: 0 if every program ran, and the simulator answers as the hardware does.
    """
    built = build(GPU)
    answers: dict[str, Records] = {}
    for topic in topics():  # what fails keeps nobody from the rest
        try:
            answers |= ask_all({name: built[name] for name in programs(topic)}, GPU)
        except BuildError as error:
            print(f"error: {error}", flush=True)
            continue
        if golden_path(topic, old).is_file():
            _print_some(f"{topic}, new and old", differences(topic, answers[topic], old))
        else:
            print(f"{topic}: there was no golden file")
    if not answers:
        raise BuildError("conformance: no program ran: --regenerate needs an H200")
    write(answers, gpu_name(), out)
    print(f"Wrote {', '.join(f'{topic}.txt' for topic in answers)} to {out}", flush=True)
    mine = ask_all(build(POLICIES[0]), POLICIES[0])
    found = [text for topic in answers for text in compare_all(mine[topic], answers[topic])]
    return max(_report(found, answers), int(answers.keys() < mine.keys()))


def write(answers: dict[str, Records], gpu: str, out: Path) -> None:
    """Writes golden files, and all values beside them unless `out` is the repository's folder."""
    out.mkdir(parents=True, exist_ok=True)
    for topic, records in answers.items():
        names = ", ".join(f"{name}.cu" for name in programs(topic))
        header = HEADER.format(gpu=gpu, programs=names, command=REGENERATE)
        kept = [golden.keep(record) for record in records.values()]
        golden_path(topic, out).write_text(golden.write(header, kept))
    if out.resolve() == GOLDEN:
        return
    with zipfile.ZipFile(out / WHOLE, "w", zipfile.ZIP_DEFLATED) as file:
        for topic, records in answers.items():
            file.writestr(topic, golden.dump(records))


def against_whole(answers: dict[str, Records], path: Path) -> list[str]:
    """Returns how answers differ from all values of a GPU, as `--regenerate --out` keeps them."""
    with zipfile.ZipFile(path) as file:
        whole = {topic: golden.parse_records(file.read(topic)) for topic in file.namelist()}
    return [text for topic in topics() for text in compare_all(answers[topic], whole[topic])]


def compare_all(answers: Records, wanted: Records) -> list[str]:
    """Returns how answers differ from those of the hardware, value by value."""
    found = [f"{name}: only one of the two has it" for name in answers.keys() ^ wanted.keys()]
    both = [name for name in answers if name in wanted]
    compared = [golden.compare_records(answers[name], wanted[name]) for name in both]
    return sorted(found) + [text for text in compared if text]


def gpu_name() -> str:
    """Returns the GPU's name and its driver, as nvidia-smi tells them."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()
    except OSError:
        told = []
    toolkit = cuda.tests_toolkit().version
    return f"{told[0].replace(', ', ' (driver ')}, CUDA {toolkit})" if told else f"GPU ({toolkit})"


def _report(found: list[str], answers: dict[str, Records]) -> int:
    count = sum(map(len, answers.values()))
    _print_some(f"{count} records, simulator and hardware", found)
    return 1 if found else 0


def _print_some(title: str, found: list[str]) -> None:
    print(f"{title}: {len(found)} differ" if found else f"{title}: no difference")
    for text in found[:PRINTED]:
        print(f"  {text}")
    if len(found) > PRINTED:
        print(f"  … and {len(found) - PRINTED} more")
    sys.stdout.flush()

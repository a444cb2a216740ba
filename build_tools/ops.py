"""Builds what the package loads: two libraries, neither of which knows Python.

`lib/libthunderkittens_kernels.so` holds the kernels and needs the CUDA runtime alone;
`lib/libthunderkittens.so` makes torch ops of them.
"""

import dataclasses
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from build_tools import (
    build_info,
    compile,
    cuda,
    cxx,
    fingerprint,
    precompiled,
    settings,
    toolchain,
)
from build_tools.settings import ROOT

TORCH_HEADERS = "csrc/binding/precompiled.hpp"
BUILD_INFO = Path("csrc/binding/build_info.cpp")
KERNELS = "libthunderkittens_kernels.so"
LIBRARY = "libthunderkittens.so"


def build(
    package: Path = settings.PACKAGE,
    kernels: Iterable[compile.Job] | None = None,
    name: str = "lib",
) -> None:
    """Builds both libraries, and puts them into a package folder.

    Args:
        package: The folder `thunderkittens` that is to hold them.
        kernels: The compilations of CUDA kernels, where there is an nvcc; by default of those that
            are selected.
        name: Of the folder where what is linked of them is kept.
    """
    toolkit, reason = cuda.toolkit()
    print(toolchain.describe(toolkit, reason), flush=True)
    header = build_info.write(toolkit)
    host, device = _kernel_jobs(toolkit, kernels)
    glue = glue_jobs(header)
    # The slowest first: kernels, then what includes ATen.
    results = compile.run([*reversed(device), *glue, *host], "Compiling")
    outputs = {result.job.name: result.output for result in results}
    objects = [tuple(outputs[job.name] for job in jobs) for jobs in ([*host, *device], glue)]
    links = [_link_kernels(objects[0], toolkit, name)]
    links += [_link_library((*objects[1], links[0].output), name)]
    for job in links:
        compile.run([job], "Linking")
    compile.print_times(results)
    for job, place in zip(links, (KERNELS, LIBRARY), strict=True):
        compile.install(job.output, package / "lib" / place)
    for module in package.glob("_C.*.so"):  # of earlier versions: it would hide _C.py
        module.unlink()


def families_for(needed: Iterable[str], package: Path = settings.PACKAGE) -> list[str]:
    """Returns what to build where some programs are to run, and nothing is to be lost.

    Args:
        needed: The families that they call.
        package: The folder whose library, if there is one, keeps its families.

    Returns:
        Of the selected families those that are needed or there already; all that
        THUNDERKITTENS_KERNELS names, if it is set.
    """
    selected = [kernel.name for kernel in settings.selected_kernels()]
    if os.environ.get("THUNDERKITTENS_KERNELS"):
        return selected
    wanted = {*needed, *_built_families(package)}
    return [name for name in selected if name in wanted]


def _built_families(package: Path) -> list[str]:
    """Returns the families with CUDA code in a package's library, by what it says of its build."""
    library = package / "lib" / LIBRARY
    if not library.is_file():
        return []
    info = re.search(rb'\{\n "version": .*?\n\}\0', library.read_bytes(), re.DOTALL)
    return list(json.loads(info[0][:-1])["kernels"]) if info else []


def build_kernels(package: Path, toolkit: toolchain.Cuda | None) -> None:
    """Builds the kernels' library alone, and puts it into a package folder.

    Args:
        package: The folder that is to hold it.
        toolkit: What to compile CUDA kernels with; None leaves them out.
    """
    host, device = _kernel_jobs(toolkit, None)
    results = compile.run([*reversed(device), *host], "Compiling the kernels")
    link = _link_kernels(tuple(result.output for result in results), toolkit, "kernels")
    compile.run([link], "Linking")
    compile.install(link.output, package / "lib" / KERNELS)


def _kernel_jobs(
    toolkit: toolchain.Cuda | None, kernels: Iterable[compile.Job] | None
) -> tuple[list[compile.Job], list[compile.Job]]:
    """Returns the compilations of the kernels' library: by the C++ compiler, and by nvcc."""
    host = host_jobs()
    if toolkit is None:
        return host, []
    chosen = cuda.kernel_jobs(toolkit) if kernels is None else kernels
    return host, [*chosen, cuda.device_job(toolkit)]


def host_jobs() -> list[compile.Job]:
    """Returns the compilations of the C++ sources beside the kernels, which know no torch."""
    return [cxx.host_job(source) for source in cxx.sources("csrc/host", "csrc/kernels/*")]


def glue_jobs(header: Path) -> list[compile.Job]:
    """Returns the compilations of the torch ops: one of each folder, and one without torch.

    A folder's sources are one translation unit. Most of what one of them alone would cost are
    templates of torch's headers, which g++ instantiates at its end, used or not.

    Args:
        header: The generated header of build_info.cpp, in a folder to include from.
    """
    torch = toolchain.find_torch()
    tool = f"torch {torch.version}"
    torch_headers = cxx.job(Path(TORCH_HEADERS), tool, ("-x", "c++", *torch.include_flags))
    flags, needs = precompiled.header(torch_headers)
    found = []
    for folder in torch_folders():
        *others, last = (path for path in cxx.sources(folder) if path != BUILD_INFO)
        before = (word for path in others for word in ("-include", str(path)))
        job = cxx.job(last, tool, (*torch.include_flags, *before))
        job = dataclasses.replace(job, name=f"{folder}/all")
        found.append(precompiled.begin_with(job, flags, needs))
    flags = ("-I", str(header.parent), *fingerprint.flags())
    return [*found, cxx.job(BUILD_INFO, flags=flags)]


def torch_folders() -> list[str]:
    """Returns the folders of sources with torch, relative to the repository."""
    families = sorted(ROOT.glob("csrc/kernels/*/torch"))
    return ["csrc/binding", *(str(path.relative_to(ROOT)) for path in families)]


def _link_kernels(
    objects: tuple[Path, ...], toolkit: toolchain.Cuda | None, name: str
) -> compile.Job:
    compiler = toolchain.find_compiler()
    # The runtime by its full path: the Python packages have no libcudart.so to find with -l.
    runtime = (str(toolkit.cudart), *_runtime_paths(toolkit)) if toolkit else ()
    return compile.Job(
        name=f"{name}/libthunderkittens_kernels",
        command=(*cxx.shared_library(KERNELS), "{inputs}", cxx.LIBRARY, *runtime),
        tool=f"{compiler.name}, CUDA {toolkit.version}" if toolkit else compiler.name,
        suffix=".so",
        inputs=objects,
        depends=False,
    )


def _runtime_paths(toolkit: toolchain.Cuda) -> tuple[str, ...]:
    """Returns flags to look for CUDA's runtime among Python's packages, beside ours.

    Under torch it is loaded already; for C++ programs, LD_LIBRARY_PATH and ldconfig count too.
    """
    major = toolchain.version_tuple(toolkit.version)[0]
    folder = "cuda_runtime" if major < 13 else f"cu{major}"
    return (f"-Wl,-rpath,$ORIGIN/../../nvidia/{folder}/lib",)


def _link_library(objects: tuple[Path, ...], name: str) -> compile.Job:
    compiler, torch = toolchain.find_compiler(), toolchain.find_torch()
    return compile.Job(
        name=f"{name}/libthunderkittens",
        command=(
            *cxx.shared_library(LIBRARY),
            "{inputs}",
            cxx.LIBRARY,
            f"-L{torch.root / 'lib'}",
            "-lc10",
            "-ltorch_cpu",
            "-Wl,-rpath,$ORIGIN:$ORIGIN/../../torch/lib",  # beside the package, for C++ programs
            f"-Wl,-rpath-link,{torch.root / 'lib'}",
            "-Wl,--allow-shlib-undefined",
        ),
        tool=f"{compiler.name}, torch {torch.version}",
        suffix=".so",
        inputs=objects,
        depends=False,
    )

"""demos/train_gpt2/gather.py: which packages' text may be trained on, and what of it is kept."""

from importlib import metadata

import pytest

from demos.train_gpt2 import gather

LONG = "a line of text that says little\n" * 10
LICENCES = {  # of a package's METADATA, and whether it is free
    "License-Expression: MIT": True,
    "License-Expression: MIT AND (Apache-2.0 OR GPL-3.0-only)": True,
    "License-Expression: MIT AND GPL-3.0-only": False,
    "License-Expression: LicenseRef-Proprietary": False,
    "Classifier: License :: OSI Approved :: BSD License": True,
    "Classifier: License :: OSI Approved\nLicense: Apache 2.0": True,
    "Classifier: License :: OSI Approved :: MIT License\n"
    "Classifier: License :: Other/Proprietary License": False,
    "License: BSD": True,
    "License: as is": False,
    "Summary: none is named": False,
}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts packages, by name, licence and files, where the program finds them alone."""
    site = tmp_path / "site"
    find = metadata.distributions
    monkeypatch.setattr(gather.metadata, "distributions", lambda: find(path=[str(site)]))
    monkeypatch.setattr(gather.sysconfig, "get_path", lambda name: str(tmp_path / "library"))
    (tmp_path / "library" / "test").mkdir(parents=True)
    (tmp_path / "library" / "abc.py").write_text("of Python\n" + LONG)

    def put(name: str, facts: str, files: dict[str, str]) -> None:
        folder = site / f"{name}-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n{facts}\n")
        for path, text in files.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text)
        (folder / "RECORD").write_text("".join(f"{path},,\n" for path in files))

    return put


@pytest.mark.parametrize("facts, free", LICENCES.items())
def test_licences(install, facts, free):
    install("one", facts, {"one.py": "of one\n" + LONG})
    assert [name for name, *_ in gather.sources()] == ["Python", *["one"] * free]


def test_what_is_kept(install, tmp_path, capsys):
    install(
        "one",
        "License-Expression: ISC",
        {
            "one/code.py": "of one\n" + LONG,
            "one/twice.md": "of one\n" + LONG,
            "one/short.py": "x = 1\n",
            "one/long.txt": LONG * 1000,
            "one/table.py": "0123456789\n" * 30,
            "one/binary.so": "of one, too\n" + LONG,
            "one/_vendor/other.py": "of another\n" + LONG,
            "../script.py": "outside\n" + LONG,
        },
    )
    install("small", "License: MIT", {"small.py": "of small\n" + LONG})
    install("closed", "License: NVIDIA Proprietary Software", {"closed.py": "closed\n" + LONG})
    out, table = tmp_path / "texts", tmp_path / "licences.md"
    command = ["--out", str(out), "--list", str(table), "--least", "325"]
    assert gather.main(command) == 0
    kept = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert kept == ["Python/abc.py", "one/one/code.py", "small/small.py"]
    assert (out / "one/one/code.py").read_text() == "of one\n" + LONG
    assert "| one 1.0 | ISC | 1 | 0.0 |" in table.read_text().splitlines()
    assert capsys.readouterr().out == table.read_text()
    assert gather.main(command) == 1
    assert capsys.readouterr().err == f"gather: --out {out}: must be empty, or not there\n"


def test_small_packages_are_left_out(install, tmp_path):
    install("small", "License: MIT", {"small.py": "of small\n" + LONG})
    out = tmp_path / "texts"
    assert gather.main(["--out", str(out), "--least", "330"]) == 0
    assert [path.name for path in out.iterdir()] == ["Python"]


def test_packages_are_chosen_by_name(install, tmp_path, capsys):
    for name in ("one", "Two"):
        install(name, "License: MIT", {f"{name}.py": f"of {name}\n" + LONG})
    install("closed", "License: as is", {"closed.py": "closed\n" + LONG})
    command = ["--least", "0", "--out", str(tmp_path / "some"), "--packages"]
    assert gather.main([*command, "two"]) == 0
    assert [path.name for path in (tmp_path / "some").iterdir()] == ["Two"]
    capsys.readouterr()
    command[3] = str(tmp_path / "others")
    assert gather.main([*command, "python,closed,zero"]) == 1
    assert capsys.readouterr().err == (
        "gather: --packages: none that is free is called closed, zero\n"
    )

"""Which statements a planted mistake is chosen with, and which program it comes into."""

import pytest

from tests.tools import planted, switched
from tests.tools.planted import Mistake

FILE = "kernels/example/kernel.cuh"
CODE = """\
struct consumer {
  cursor<4> at{0, 1};

  KITTENS_DEVICE void consume() {
    const int n = count();
    for (int i = 0; i < n; ++i) {
      wait(full[i]);
      if (leads()) {
        store(i);
        arrive(empty[i]);
      } else if (n > 2) {
        fence();
      }
    }
    finish([&] { arrive(all); });
  }
};
"""


def mistake(right: str, wrong: str = "") -> Mistake:
    return Mistake(right, right, wrong, "", FILE)


@pytest.fixture(autouse=True)
def example(monkeypatch):
    monkeypatch.setattr(planted, "source_of", lambda file: CODE)


@pytest.mark.parametrize(
    ("right", "statements"),
    [
        ("wait(full[i]);", "wait(full[i]);"),
        ("i < n", "for (int i = 0; *}"),
        ("leads()", "if (leads()) {*fence();\n      }"),
        ("store(i);\n        arrive(", "store(i);\n        arrive(empty[i]);"),
        ("fence();", "fence();"),
        ("n > 2", "if (n > 2) {\n        fence();\n      }"),
        ("arrive(all)", "finish([&] { arrive(all); });"),
        ("n = count()", None),  # all that follows needs n
        ("at{0, 1}", None),
    ],
)
def test_statements_that_are_chosen(right, statements):
    region = switched.region_of(mistake(right))
    if statements is None:
        assert region is None
        return
    first, _, last = statements.partition("*")
    text = CODE[slice(*region)]
    assert text.startswith(first) and text.endswith(last)
    assert last or text == first


def test_mistakes_share_a_program_unless_one_lies_across_another():
    mistakes = [mistake(right) for right in ("wait(full[i]);", "i < n", "fence();", "at{0, 1}")]
    groups = switched.groups([*mistakes, mistake("wait(full[i]);", "test(full[i]);")])
    assert [[one.right for one in group.mistakes] for group in groups] == [
        ["wait(full[i]);", "fence();", "wait(full[i]);"],
        ["i < n"],
        ["at{0, 1}"],
    ]


def test_source_of_several_mistakes(tmp_path):
    (group,) = switched.groups([mistake("wait(full[i]);", "test(full[i]);"), mistake("fence();")])
    group.write(tmp_path)
    text = (tmp_path / FILE).read_text()
    assert text.startswith(f'#include "{switched.NUMBER}"\n')
    assert "if (::planted_number == 1) {\ntest(full[i]);\n} else {\nwait(full[i]);\n}" in text
    assert "if (::planted_number == 2) {\n\n} else {\nfence();\n}" in text
    assert planted.NUMBER in (tmp_path / switched.NUMBER).read_text()

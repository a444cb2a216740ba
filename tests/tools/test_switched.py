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
    int* const first = begin(n);
    range<4> all(first, n);
    for (int i = 0; i < n; ++i) {
      wait(full[i]);
      if (leads()) [[likely]] {
        store(i);
        arrive(empty[i]);
      } else if (n > 2) {
        fence();
      }
      step(i);
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
        ("leads()", "if (leads()) [[likely]] {*fence();\n      }"),
        ("store(i);\n        arrive(", "store(i);\n        arrive(empty[i]);"),
        ("fence();", "fence();"),
        ("n > 2", "if (n > 2) {\n        fence();\n      }"),
        ("arrive(all)", "finish([&] { arrive(all); });"),
        ("n = count()", "const int n = count();*finish([&] { arrive(all); });"),  # which needs n
        ("(first, n)", "range<4> all*finish([&] { arrive(all); });"),
        ("begin(n)", "int*finish([&] { arrive(all); });"),
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
    rights = ["wait(full[i]);", "i < n", "fence();", "n = count()"]
    before, behind = "wait(full[i]);\n      if (leads()", "fence();\n      }\n      step(i);"
    among = [*rights, before, behind, "at{0, 1}", "wait(full[i]);"]
    groups = switched.groups(map(mistake, among))
    assert [[one.right for one in group.mistakes] for group in groups] == [
        [*rights, before, "wait(full[i]);"],
        [behind],
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


def test_a_choice_within_what_another_mistake_changes(tmp_path):
    (group,) = switched.groups([mistake("fence();"), mistake("i < n", "i <= n")])
    group.write(tmp_path)
    text = (tmp_path / FILE).read_text()
    right = "fence();\n      }\n      step(i);\n    }"
    wrong, _, otherwise = text.partition("\n} else {\nfor (int i = 0; i < n; ++i) {")
    assert "if (::planted_number == 2) {\nfor (int i = 0; i <= n; ++i) {" in wrong
    assert wrong.endswith(right) and "if (::planted_number == 1)" in otherwise

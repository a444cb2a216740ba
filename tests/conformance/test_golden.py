"""The comparison itself: it finds each kind of difference, and none where there is none."""

import math
import struct

import pytest

from build_tools.settings import BuildError
from tests.tools import conformance, golden
from tests.tools.golden import Record


def floats(values: list[float], rule: str, name: str = "x") -> Record:
    return Record(name, "f32", rule, struct.pack(f"<{len(values)}f", *values))


def words(values: list[int], rule: str = "bits", kind: str = "u16") -> Record:
    code = golden.TYPES[kind]
    return Record("words", kind, rule, struct.pack(f"<{len(values)}{code}", *values))


def difference(got: Record, want: Record) -> str:
    """What both ways to compare say, which must agree on whether there is a difference."""
    kept = golden.parse(golden.write("# header\n", [golden.keep(want)]))[want.name]
    text = golden.compare(got, kept)
    assert bool(text) == bool(golden.compare_records(got, want)), text
    return text


def changed(record: Record, byte: int) -> Record:
    data = bytearray(record.data)
    data[byte] ^= 1
    return Record(record.name, record.type, record.rule, bytes(data))


@pytest.mark.parametrize("count", [1, 7, 8, 9, 32, 33, 1000])
def test_each_changed_bit_is_found(count):
    record = words(list(range(count)))
    assert not difference(record, record)
    for place in {0, count // 2, count - 1}:
        assert difference(changed(record, 2 * place), record)


def test_a_difference_says_where():
    record = words(list(range(1000)))
    assert "[3] is 2, the hardware's 3" in difference(changed(record, 6), record)
    assert "500–624 differ; 500 … are 500 501" in difference(changed(record, 1101), record)


def test_nans_are_equal_where_the_rule_says_so():
    one = words([0x7FC0, 0x3F80], "value", "bf16")
    other = words([0xFFFF, 0x3F80], "value", "bf16")
    assert not difference(one, other)
    assert difference(words([0x7FC0], "bits", "bf16"), words([0xFFFF], "bits", "bf16"))
    assert difference(words([0x7F80], "value", "bf16"), words([0xFFFF], "value", "bf16"))
    assert not difference(floats([math.nan, 1], "ulp 2"), floats([-math.nan, 1], "ulp 2"))
    assert difference(floats([math.nan], "ulp 2"), floats([1], "ulp 2"))
    assert difference(floats([1], "near 1 1"), floats([math.nan], "near 1 1"))


def test_infinities_and_signs_of_zero_count():
    for rule in ("value", "ulp 3", "near 0.1 0"):
        assert difference(floats([math.inf], rule), floats([3e38], rule))
        assert difference(floats([-math.inf], rule), floats([math.inf], rule))
        assert difference(floats([-0.0], rule), floats([0.0], rule))
        assert not difference(floats([-0.0, math.inf], rule), floats([-0.0, math.inf], rule))
    assert not difference(floats([-0.0], "near 0 1e-9"), floats([0.0], "near 0 1e-9"))


def test_steps_between_floats_are_counted():
    step = 2.0**-23
    assert not difference(floats([1 + 2 * step, -1 - step], "ulp 2"), floats([1, -1], "ulp 2"))
    assert "(1.5×)" in difference(floats([1 + 3 * step], "ulp 2"), floats([1], "ulp 2"))
    assert not difference(floats([1 - step / 2], "ulp 1"), floats([1], "ulp 1"))
    assert difference(floats([1e-45], "ulp 1"), floats([-1e-45], "ulp 1"))


def test_bounds_are_relative_and_absolute():
    rule = "near 0.01 0.1"
    assert not difference(floats([101.0], rule), floats([100.0], rule))
    assert difference(floats([101.2], rule), floats([100.0], rule))
    assert difference(floats([0.2], rule), floats([0.0], rule))


def test_a_file_keeps_every_number_exactly():
    values = [1 / 3, -0.0, 1e-45, 3.4028234663852886e38, math.inf, -math.inf, 0.1]
    record = floats(values, "near 0 0")
    assert not difference(record, record)
    wide = words([0, 2**64 - 1, 2**53 + 1], "bits", "u64")
    assert golden.keep(wide).values == ("0", "18446744073709551615", "9007199254740993")
    assert not difference(wide, wide)


def test_another_form_of_a_record_is_not_compared():
    kept = golden.keep(words([1, 2]))
    assert "regenerate it" in golden.compare(words([1, 2, 3]), kept)
    assert "regenerate it" in golden.compare(words([1, 2], "value"), kept)


def test_dumps_are_read_back_and_checked():
    records = {"x": floats([1, 2], "ulp 1"), "words": words([1, 10, 2])}
    dump = golden.dump(records)
    assert golden.parse_records(dump) == records
    with pytest.raises(ValueError, match="cut off"):
        golden.parse_records(dump[:-1])
    with pytest.raises(ValueError, match="two records are named x"):
        golden.parse_records(dump + dump)


def test_a_golden_file_has_what_the_programs_record(tmp_path):
    answers = {"x": floats([1, 2], "value"), "words": words([1, 2])}
    with pytest.raises(BuildError, match=r"no golden file .*: run `python3 -m build_tools conf"):
        conformance.differences("numbers", answers, tmp_path)
    conformance.write({"numbers": answers}, "GPU", tmp_path)
    assert not conformance.differences("numbers", answers, tmp_path)
    assert not conformance.compare_all(answers, answers)
    more = answers | {"y": floats([1], "value", "y")}
    assert "y: not in numbers.txt" in conformance.differences("numbers", more, tmp_path)[0]
    del answers["x"]
    assert "x: no program records it" in conformance.differences("numbers", answers, tmp_path)[0]

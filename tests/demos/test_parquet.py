"""Texts out of Parquet files, by a pyarrow that stands for the real one where there is none."""

import json
import re
import sys
import types

import pytest
from models import data


class Rows:
    """Of pyarrow what the reader calls, for a file whose text is JSON: its columns."""

    def __init__(self, path):
        self.columns = json.loads(path.read_text())
        self.schema_arrow = types.SimpleNamespace(names=list(self.columns))

    def iter_batches(self, columns):
        (name,) = columns
        for value in self.columns[name]:
            yield types.SimpleNamespace(
                column=lambda of, value=value: types.SimpleNamespace(
                    to_pylist=lambda: [value] if of == name else None
                )
            )


@pytest.fixture
def pyarrow(monkeypatch):
    module = types.ModuleType("pyarrow")
    module.ArrowException = ValueError  # as JSON's is one
    module.parquet = types.SimpleNamespace(ParquetFile=Rows)
    monkeypatch.setitem(sys.modules, "pyarrow", module)


def test_rows_of_parquet_are_documents(pyarrow, tmp_path):
    path = tmp_path / "rows.parquet"
    path.write_text(json.dumps({"id": [1, 2, 3, 4], "text": ["one", None, "", "two"]}))
    (tmp_path / "three.txt").write_text("three")
    assert sorted(data.read_documents(str(tmp_path))) == ["one", "three", "two"]
    assert data.read_documents(str(path)) == ["one", "two"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"id": [1], "body": ["x"]}', "has no column 'text', but id, body"),
        ('{"text": ["x", 5]}', "'text' must be strings, got 5"),
        ("{", "not a Parquet file (Expecting property name"),
        ('{"text": [null]}', "there is no UTF-8 text there"),
    ],
    ids=["column", "numbers", "damaged", "empty"],
)
def test_other_parquet_is_refused(pyarrow, tmp_path, content, message):
    path = tmp_path / "rows.parquet"
    path.write_text(content)
    with pytest.raises(data.DataError, match=re.escape(message)):
        data.read_documents(str(path))


def test_without_pyarrow_the_remedy_is_said(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    with pytest.raises(data.DataError, match="not installed .pip install pyarrow"):
        data.read_documents(str(tmp_path))


def test_pyarrow_itself_reads_it(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    texts = [f"text {number} ü" for number in range(1000)]
    parquet.write_table(arrow.table({"id": list(range(1000)), "text": texts}), path)
    assert data.read_documents(str(path)) == texts
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(data.DataError, match="not a Parquet file"):
        data.read_documents(str(path))

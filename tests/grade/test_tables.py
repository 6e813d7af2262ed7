"""Tables: what spreadsheets write is read, what is written computes nothing."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mha_lib.grade import tables


@given(st.text())
def test_a_cell_says_what_it_was_given(text):
    shown = tables.cell(text)
    assert tables.original(shown) == text
    assert len(shown.splitlines()) <= 1
    assert shown == "-" or not shown.lstrip().startswith(tables.FORMULA)


def test_a_dash_alone_is_none(tmp_path):
    """Moodle writes it where nothing was graded, and reads it as that."""
    assert tables.cell("-") == "-" and tables.cell("-1+1") == "'-1+1"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_table_is_read_as_any_spreadsheet_writes_it(separator, encoding, tmp_path):
    path = tmp_path / "t.csv"
    lines = ["id;name ", '7;"Ada\nLovelace"', ";", "8;Zoë"]
    text = "\r\n".join(lines).replace(";", separator)
    path.write_bytes(text.encode(encoding))
    headers, rows = tables.read(path)
    assert headers == ["id", "name"]
    assert [row.cells for row in rows] == [
        {"id": "7", "name": "Ada\nLovelace"},
        {"id": "8", "name": "Zoë"},
    ]
    assert rows[1].where == f"{path}, line 5"
    assert str(rows[1].fail("why")) == f"{path}, line 5: why"


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", ": a table with a line of headers is required"),
        (b"id,name\n7\n", ", line 2: as many cells as in the line of headers are "),
        (b"id,name,id\n", ", line 1: the headers must differ; got 'id' twice"),
        (b"id,name\n7,Zo\xeb\n", ", line 2: save it as UTF-8"),
        (b'id,name\n7,Ada\n8,"Ben\n9,Cleo\n10,Dan\n', ", line 3: unexpected end of"),
        (b'id,name\n7,"A"d"a"\n', ", line 2: ',' expected after '\"'; is a quote"),
        (b"id,name\n7," + b"x" * 200_000, ", line 2: field larger than field limit"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(content, said, tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError) as error:
        tables.read(path)
    assert str(error.value).startswith(f"{path}{said}")


def test_what_splits_a_cell_in_two_is_said(tmp_path):
    (tmp_path / "t.csv").write_text("id;name\n7;a;b\n")
    with pytest.raises(ValueError, match="2; got 3. A text with ';' in it stands in q"):
        tables.read(tmp_path / "t.csv")


def test_a_column_without_a_header_may_be_there_twice(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,,\n7,,\n")
    assert tables.read(path)[1][0].cells["id"] == "7"


def test_every_cell_is_quoted():
    text = tables.text(["a", "b"], [["1,2", 'say "x"'], ["=1", ""]])
    assert text == '"a","b"\n"1,2","say ""x"""\n"\'=1",""\n'
    assert list(csv.reader(io.StringIO(text)))[1] == ["1,2", 'say "x"']

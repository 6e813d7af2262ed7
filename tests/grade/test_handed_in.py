"""What was handed in: folders and zips, and zips that nobody should open."""

import io
import os
import stat
import struct
import warnings
import zipfile

import pytest

from mha_lib.grade import handed_in, submission
from mha_lib.grade.handed_in import Member, read, submissions


@pytest.fixture
def zipped(tmp_path):
    """A zip of these files; a name may be a ZipInfo."""

    def write(files: dict, how=zipfile.ZIP_DEFLATED):
        path = tmp_path / "export.zip"
        with zipfile.ZipFile(path, "w", how) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return path

    return write


def test_a_zip_is_read_where_it_is(zipped, tmp_path):
    files = {"ada/a2.py": "x = 1", "ben.ipynb": "{}", "cleo/": "", "dan.PDF": "%PDF"}
    beside = dict.fromkeys(["__MACOSX/ada/a2.py", ".git/config", "ada/.DS_Store"], "x")
    path = zipped(files | beside)
    found = submissions([path])
    assert list(found) == ["ada/a2.py", "ben.ipynb", "dan.PDF"]
    ada = read(found["ada/a2.py"])
    (tmp_path / "a2.py").write_text("x = 1")
    assert ada == read(tmp_path / "a2.py") and ada.kind == "py"
    assert "a notebook (.ipynb)" in read(found["dan.PDF"]).problem
    assert [x.name for x in tmp_path.iterdir() if x.is_dir()] == [], "nothing unpacked"


def test_names_in_zips_and_folders_must_differ(zipped, tmp_path):
    path = zipped({"ada.py": "x = 1"})
    (tmp_path / "ada.py").write_text("")
    with pytest.raises(
        ValueError, match="names must differ; got .*ada.py and .*ada.py"
    ):
        submissions([tmp_path / "ada.py", path])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # zipfile's own, of this test
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("./ada.py", "")
    with pytest.raises(ValueError, match="names must differ"):
        submissions([path])


@pytest.mark.parametrize(
    "name", ["../eve.py", "/etc/eve.py", "a/../../eve.py", "C:eve.py", "a\\eve.py"]
)
def test_a_path_that_leads_out_is_refused(name, zipped):
    info = zipfile.ZipInfo("x" * len(name))
    path = zipped({"ada.py": "x = 1", info: "x = 2"})
    path.write_bytes(path.read_bytes().replace(info.filename.encode(), name.encode()))
    with pytest.raises(
        ValueError, match="export.zip holds a path that leads out of it"
    ):
        submissions([path])


@pytest.mark.parametrize("damage", ["cut", "text", "content", "password", "method"])
def test_a_broken_zip_is_refused(damage, zipped):
    path = zipped({"ada.py": "x = 1" * 50}, zipfile.ZIP_STORED)
    content = path.read_bytes()
    start = content.index(b"PK\1\2")  # the directory, at the end
    broken = {
        "cut": content[: len(content) // 2],
        "text": b"a page that says: please log in",
        "content": content.replace(b"x = 1x = 1", b"x = 2x = 1", 1),
        "password": content[: start + 8] + struct.pack("<H", 1) + content[start + 10 :],
        "method": content[: start + 10] + struct.pack("<H", 99) + content[start + 12 :],
    }[damage]
    path.write_bytes(broken)
    said = {"content": "at 'ada.py'", "password": "under a password"}
    with pytest.raises(
        ValueError, match=said.get(damage, "export.zip is a broken zip")
    ):
        submissions([path])


def test_a_zip_with_a_hole_is_refused(zipped):
    path = zipped({"ada.py": "".join(f"x{n} = {n * n}\n" for n in range(2000))})
    data = bytearray(path.read_bytes())
    data[200:3000] = bytes(2800)  # in what was deflated
    path.write_bytes(data)
    with pytest.raises(ValueError, match="export.zip is a broken zip: .*export it ag"):
        submissions([path])


def test_a_bomb_is_refused_before_it_is_opened(zipped, monkeypatch):
    path = zipped({f"{n}.py": b"\0" * (1 << 20) for n in range(4)})
    assert submissions([path])
    monkeypatch.setattr(zipfile.ZipFile, "testzip", lambda self: 1 / 0)
    monkeypatch.setattr(handed_in, "LARGEST", 1 << 21)
    with pytest.raises(
        ValueError, match="claims 4 files of 4 MB .*looks like a zip bo"
    ):
        submissions([path])
    monkeypatch.setattr(handed_in, "LARGEST", 1 << 30)
    monkeypatch.setattr(handed_in, "MOST", 3)
    with pytest.raises(ValueError, match="claims 4 files"):
        submissions([path])


def test_a_large_file_and_a_link_in_a_zip_are_told_so(zipped, monkeypatch):
    link = zipfile.ZipInfo("link.py")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    path = zipped({link: "/etc/passwd", "large.py": "x = 1" * 10, "ada.py": "x = 1"})
    monkeypatch.setattr(submission, "LARGEST", 20)
    assert read(Member(path, "link.py")).problem == submission.NO_FILE
    large = read(Member(path, "large.py"))
    assert large.problem.startswith("a file may have") and large.content == b""
    assert read(Member(path, "ada.py")).problem == ""


def packed(files: dict) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize("around", ["folder", "zip"])
def test_a_zip_that_was_handed_in_is_opened(around, zipped, tmp_path):
    inner = {"week 2/a2.py": "x = 1", "__MACOSX/a2.py": "", "more.ZIP": packed({})}
    files = {"ada/work.zip": packed(inner), "ben.py": "x = 2"}
    if around == "zip":
        start = zipped(files)
    else:
        start = tmp_path / "in"
        (start / "ada").mkdir(parents=True)
        for name, content in files.items():
            text = content if isinstance(content, bytes) else content.encode()
            (start / name).write_bytes(text)
    found = submissions([start])
    places = ["ada/work.zip/more.ZIP", "ada/work.zip/week 2/a2.py", "ben.py"]
    assert list(found) == places
    assert read(found[places[1]]).content == b"x = 1"
    assert read(found[places[0]]).problem.endswith("not too large and in no zip")
    root = start / "ada" / "work.zip" if around == "folder" else start
    assert found[places[1]].root == root
    assert str(found[places[1]]).startswith("week 2/a2.py in ")


@pytest.mark.parametrize("around", ["folder", "zip"])
@pytest.mark.parametrize("damage", ["text", "empty", "out", "bomb", "many", "large"])
def test_a_zip_that_cannot_be_opened_ends_nothing_and_is_told_so(
    damage, around, zipped, tmp_path, monkeypatch
):
    content = {
        "text": b"a page that says: please log in",
        "empty": packed({"folder/": ""}),
        "out": packed({"../eve.py": "x = 1"}),
        "bomb": packed({f"{n}.py": b"\0" * (1 << 20) for n in range(4)}),
        "many": packed(dict.fromkeys("abcdef", "")),
        "large": packed({"a.py": "x = 1"}),
    }[damage]
    if damage == "large":
        monkeypatch.setattr(submission, "LARGEST", 20)
    monkeypatch.setattr(handed_in, "INNER", (5, 1 << 20, 10))
    if around == "zip":
        start = zipped({"eve.zip": content, "ada.py": "x = 1"})
    else:
        start = tmp_path / "in"
        start.mkdir()
        (start / "eve.zip").write_bytes(content)
        (start / "ada.py").write_text("x = 1")
    found = submissions([start])
    if (damage, around) == ("large", "folder"):
        assert list(found) == ["ada.py", "eve.zip/a.py"], "on the disk it may be"
    else:
        assert list(found) == ["ada.py", "eve.zip"]
        assert "a zip is opened if it is whole" in read(found["eve.zip"]).problem


def test_a_link_or_a_pipe_called_zip_is_not_opened(tmp_path):
    (tmp_path / "secret.zip").write_bytes(packed({"a.py": "x = 1"}))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "eve.zip").symlink_to(tmp_path / "secret.zip")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "in" / "pipe.zip")  # to open it would wait for ever
    found = submissions([tmp_path / "in"])
    assert set(found) <= {"eve.zip", "pipe.zip"}
    assert {read(x).problem for x in found.values()} == {submission.NO_FILE}


def test_text_beside_submissions(zipped, tmp_path):
    (tmp_path / "m.yml").write_text("é", encoding="utf-8")
    path = zipped({"m.yml": "é"})
    assert handed_in.text(tmp_path / "m.yml") == "é"
    assert handed_in.text(Member(path, "m.yml")) == "é"

"""A served program whose attachments are in a bucket, over the wire."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import httpx
import pytest

from coordinator.chat.verified_reading import PIECE
from tests.s3 import serving
from tests.served import manage

pytestmark = pytest.mark.one_engine


def until_cut(answer: httpx.Response) -> bytes:
    """Return what came of an answer that ends too early."""
    came = bytearray()
    try:
        for chunk in answer.iter_raw():
            came += chunk
    except httpx.RemoteProtocolError:
        return bytes(came)
    raise AssertionError("The answer came whole.")


def test_a_file_goes_up_and_down_and_one_that_is_damaged_is_cut_where_it_is(serve, tmp_path) -> None:
    data = os.urandom(8 * PIECE)
    with serving() as s3:
        served = serve(workers=1, **s3.settings())
        operator = served.client(key="operator")
        served.sql("UPDATE agents SET enabled = 1")
        ((agent,), *_) = served.sql("SELECT id FROM agents")
        told = operator.post(
            f"/api/chat/{agent}/messages",
            data={"text": "look"},
            files={"files": ("f.bin", data, "text/plain")},
        )
        assert told.status_code < 300, told.text
        ((name, _),) = s3.objects.items()
        ((pk,),) = served.sql("SELECT attachment_id FROM stored_files WHERE place = 's3'")
        url = f"/api/chat/attachments/{pk}"
        assert operator.get(url).content == data
        part = operator.get(url, headers={"Range": f"bytes={PIECE - 5}-{PIECE + 4}"})
        assert (part.status_code, part.content) == (206, data[PIECE - 5 : PIECE + 5])
        s3.put(name, data[: 6 * PIECE] + b"x" + data[6 * PIECE + 1 :])
        with operator.stream("GET", url) as answer:
            assert until_cut(answer) == data[: 6 * PIECE]
        s3.put(name, data)
        manage("backup", "--with-s3", str(tmp_path / "whole"), env=served.env)
        s3.fault = "AccessDenied"
        answer = operator.get(url)
        assert (answer.status_code, answer.json()["detail"]) == (
            503,
            "The file cannot be read now: the S3 bucket box answers AccessDenied. Try again later.",
        )
        assert operator.get("/health/ready").status_code == 200
        # On a machine that knows of no bucket.
        plain = {name: value for name, value in served.env.items() if not name.startswith("SIGNALBOX_S3")}
        plain |= {"SIGNALBOX_ATTACHMENTS": "folder", "SIGNALBOX_DATA_DIR": str(tmp_path / "new")}
        told = manage("restore", str(tmp_path / "whole"), env=plain).stdout
        assert "1 attachments that were in S3 came with the backup" in told
        assert (tmp_path / "new" / name.removeprefix("box/signalbox/")).read_bytes() == data
        with closing(sqlite3.connect(tmp_path / "new" / "signalbox.sqlite3")) as there:
            assert there.execute("SELECT place FROM stored_files").fetchall() == [("folder",)]

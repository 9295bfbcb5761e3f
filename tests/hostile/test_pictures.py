"""Files that are called images and are none, or are too much of one: no page waits for them and nothing runs."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from django.http import StreamingHttpResponse
from django.test import Client
from PIL import Image

from coordinator.actions.chat import chat
from coordinator.chat import attachments, thumbnails
from coordinator.models import ChatAttachment, ChatMessage
from coordinator.sandbox import JobFailed, ProcessLimits, Sandbox
from tests.chat.rows import ANNA, add_agent, png, upload
from tests.people import signed_in

pytestmark = pytest.mark.django_db
THREAD = "/ui/chat/with/agent.robot/"
NO_PREVIEW = Path("static/img/no-preview.webp").read_bytes()


@pytest.fixture
def client(db: None) -> Client:
    return signed_in("viewer")


@pytest.fixture(autouse=True)
def folder(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    add_agent()
    return tmp_path


def attached(data: bytes, name: str = "chart.png", mime_type: str = "image/png") -> ChatAttachment:
    chat.submit_chat_message("agent.robot", [], speaker=ANNA, files=[upload(data, name, mime_type)])
    return ChatAttachment.objects.latest("created_at")


def asked_for(client: Client, row: ChatAttachment) -> tuple[int, bytes]:
    answer = client.get(f"/ui/chat/files/{row.pk}/thumbnail/")
    return answer.status_code, answer.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(width: int, height: int, *more: bytes, data: bytes = b"") -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(more) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def huge_png() -> bytes:
    line = bytes(1 + 30_000 // 8)
    return png_of(30_000, 30_000, data=zlib.compress(line * 30_000, 9))


def long_gif(frames: int = 100_000) -> bytes:
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, 2_000, 2_000, 0) + b"\x02\x02\x44\x01\x00"
    return b"GIF89a" + struct.pack("<HHBBB", 2_000, 2_000, 0x80, 0, 0) + bytes(6) + frame * frames + b";"


def large_webp() -> bytes:
    out = io.BytesIO()
    Image.new("L", (12_000, 12_000)).save(out, "WEBP", quality=1, method=0)  # the quickest way to it
    return out.getvalue()


BOMBS = {
    "a PNG of 30,000 x 30,000": huge_png,
    "a GIF of 100,000 frames": long_gif,
    "a WebP of 144 megapixels": large_webp,
    "a PNG that ends early": lambda: png((2_000, 2_000))[:-200],
    "a PNG of text": lambda: png_of(
        9, 9, *[chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(1_000_000), 9))] * 80
    ),
    "a PNG whose data never ends": lambda: png_of(5_000, 5_000, data=zlib.compress(bytes(200_000_000), 9)),
    "a JPEG of segments": lambda: b"\xff\xd8" + b"\xff\xe0\x00\x02" * 500_000,
    "a WebP that is only a header": lambda: (
        b"RIFF\x00\x00\x00\x7fWEBPVP8X\x0a\0\0\0\0\0\0\0\xff\x3f\0\xff\x3f\0"
    ),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_bomb_has_a_small_picture_or_none_and_pages_go_on(client: Client, bomb: Any) -> None:
    status, picture = asked_for(client, row := attached(bomb()))
    assert status in (200, 404)
    assert attachments.sniff_mime_type(picture) == "image/webp"
    assert len(picture) < 100_000
    assert asked_for(client, row)[1] == picture, "what came of it is remembered"
    assert client.get(THREAD).status_code == 200


def test_what_took_too_long_is_tried_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    box = Sandbox("tests.sandbox.jobs", ProcessLimits(0.1, 1, 512 * 1024 * 1024, fork_each=True))
    tried = []
    monkeypatch.setattr(
        thumbnails._sandbox,
        "run_sandbox_job",
        lambda *_, **__: (tried.append(1), box.run_sandbox_job("spin")),
    )
    row = attached(png((2_000, 2_000)))
    assert [asked_for(client, row)[0] for _ in range(3)] == [
        200,
        404,
        404,
    ]  # it is known once the first has ended
    assert len(tried) == 1
    assert asked_for(client, row)[1] == NO_PREVIEW


def test_a_picture_is_made_where_no_page_waits_for_it(client: Client) -> None:
    row = attached(png((2_000, 2_000)))
    first = client.get(f"/ui/chat/files/{row.pk}/thumbnail/")
    assert isinstance(first, StreamingHttpResponse)
    assert not list((Path(attachments.settings.DATA_DIR)).rglob("*.webp")), "nothing was decoded so far"
    assert first.getvalue()[8:12] == b"WEBP"


def postscript(target: Path) -> bytes:
    act = f"/o ({target}) (w) file def o (x) writestring o closefile"
    return f"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 600 40\n{act}\nshowpage\n%%EOF\n".encode()


@pytest.mark.parametrize("mime_type", ["application/postscript", "image/png", "image/x-eps"])
def test_an_attachment_never_runs_as_postscript(client: Client, folder: Path, mime_type: str) -> None:
    row = attached(postscript(folder / "written"), "x.eps", mime_type)
    assert asked_for(client, row) == (404, NO_PREVIEW)
    with pytest.raises(JobFailed):
        thumbnails._sandbox.run_sandbox_job(
            "thumbnail", postscript(folder / "written"), mime_type="image/png", side=9, most_pixels=9**9
        )
    assert not (folder / "written").exists()


def test_an_image_block_that_names_a_file_of_another_kind_draws_no_image(
    client: Client, folder: Path
) -> None:
    row = attached(postscript(folder / "written"), "x.eps", "application/postscript")
    named = {"type": "image", "attachment_id": row.pk, "mime_type": "image/png", "width": 60, "height": 40}
    chat.submit_chat_message("agent.robot", [named | {"size_bytes": 999_999}], speaker=ANNA)
    page = client.get(THREAD).content.decode()
    assert f"/ui/chat/files/{row.pk}/thumbnail/" not in page
    assert f'<img src="/ui/chat/files/{row.pk}' not in page
    assert page.count(f'class="chat-file" href="/ui/chat/files/{row.pk}/"') == 2


def test_an_image_block_that_names_a_file_which_is_gone_is_a_file(client: Client) -> None:
    block = {"type": "image", "attachment_id": "att_gone", "mime_type": "image/png"}
    chat.submit_chat_message("agent.robot", [block], speaker=ANNA)
    page = client.get(THREAD).content.decode()
    assert 'class="chat-file" href="/ui/chat/files/att_gone/"' in page
    assert "att_gone/thumbnail" not in page


def test_a_data_url_is_what_its_bytes_are(client: Client, folder: Path) -> None:
    url = "data:image/png;base64," + base64.b64encode(postscript(folder / "written")).decode()
    chat.submit_chat_message("agent.robot", [{"type": "image", "url": url}], speaker=ANNA)
    assert ChatAttachment.objects.get().mime_type == "application/octet-stream"
    assert "<img" not in client.get(THREAD).content.decode().split("chat-messages")[1].split("</ol>")[0]


def test_the_size_that_a_sender_claims_is_not_believed() -> None:
    block = {"type": "image", "width": 10, "height": 10}
    url = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(99)).decode()
    chat.submit_chat_message("agent.robot", [block | {"url": url}], speaker=ANNA)
    assert "width" not in ChatMessage.objects.get().content[0]


def test_no_module_of_the_server_decodes_images() -> None:
    users = [path for path in Path("coordinator").rglob("*.py") if "from PIL" in path.read_text()]
    assert {str(path) for path in users} == {
        "coordinator/chat/picture_jobs.py",
        "coordinator/demo/chats.py",
        "coordinator/demo/long_session.py",
    }
    assert "Image.open" not in Path("coordinator/chat/picture_jobs.py").read_text()


@pytest.mark.parametrize(
    "mime_type", ["text/html", "image/svg+xml", "application/xhtml+xml", "text/javascript"]
)
def test_what_a_browser_would_run_is_only_ever_downloaded(client: Client, mime_type: str) -> None:
    row = attached(b"<script>alert(1)</script>", "x.html", mime_type)
    answer = client.get(f"/ui/chat/files/{row.pk}/")
    assert answer["Content-Disposition"].startswith("attachment")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer["Content-Security-Policy"]
    assert answer["Cross-Origin-Resource-Policy"] == "same-origin"

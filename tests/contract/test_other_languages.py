"""The OpenAPI document passes a public linter, and a client that is generated from it asks a person."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.agents import programs
from tests.agents.asking import decide
from tests.patience import PATIENCE
from tests.served import KEYS, Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent, pytest.mark.one_engine]

PROGRAM = """
import createClient from "openapi-fetch";
import type { paths } from "./signalbox.js";
declare const process: { env: Record<string, string | undefined> };

const client = createClient<paths>({
  baseUrl: process.env.SIGNALBOX_URL ?? "",
  headers: { Authorization: `Bearer ${process.env.SIGNALBOX_KEY}` },
});
const asked = await client.POST("/api/permission-requests", {
  body: {
    plugin_id: "sdk",
    permission_type: "ToolCall",
    justification: "To clean up",
    tool_name: "delete_file",
    tool_input: { path: "report.txt" },
    conversation_id: "order-17",
    idempotency_key: "order-17:typescript",
    runs_edited_input: true,
  },
});
if (!asked.data) throw new Error(JSON.stringify(asked.error));
console.log(asked.data.request_id);
const path = { request_id: asked.data.request_id };
let answer = asked.data;
while (answer.status === "pending") {
  const waited = await client.GET("/api/permission-requests/{request_id}/wait", {
    params: { path, query: { timeout: 20 } },
  });
  if (!waited.data) throw new Error(JSON.stringify(waited.error));
  answer = waited.data;
}
const allowed: boolean = answer.allowed;
console.log(JSON.stringify([allowed, answer.edited, answer.edited_input]));
const traced = await client.POST("/v1/traces", { body: { resourceSpans: [] } });
if (!traced.data) throw new Error(JSON.stringify(traced.error));
"""
CONFIG = {
    "compilerOptions": {
        "strict": True,
        "target": "es2022",
        "module": "nodenext",
        "skipLibCheck": False,
        "lib": ["es2022", "dom"],
        "types": [],
    },
    "files": ["ask.ts"],
}


@pytest.fixture
def document(served: Served, tmp_path: Path) -> Path:
    file = tmp_path / "openapi.json"
    file.write_text(httpx.get(f"{served.url}/api/openapi.json").text)
    return file


def run(folder: Path, *words: str) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "REDOCLY_TELEMETRY": "off"}
    done = subprocess.run(
        words, cwd=folder, env=environ, capture_output=True, text=True, timeout=4 * PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_the_document_passes_a_public_linter(document: Path) -> None:
    programs.needed("redocly")
    run(document.parent, *programs.command("redocly"), "lint", "--extends=recommended", str(document))


def test_a_generated_typescript_client_compiles_and_asks_a_person(served: Served, document: Path) -> None:
    programs.needed("openapi-typescript", "openapi-fetch")
    folder = document.parent
    node, generator = programs.command("openapi-typescript")
    libraries = Path(generator).parents[2]
    (folder / "node_modules").mkdir()
    (folder / "node_modules/openapi-fetch").symlink_to(Path(*programs.command("openapi-fetch")).parents[1])
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "tsconfig.json").write_text(json.dumps(CONFIG))
    (folder / "ask.ts").write_text(PROGRAM)
    run(folder, node, generator, str(document), "--default-non-nullable=false", "--output", "signalbox.d.ts")
    run(folder, node, str(libraries / "typescript/bin/tsc"))
    process = subprocess.Popen(
        [node, "ask.js"],
        cwd=folder,
        env={"PATH": os.defpath, "SIGNALBOX_URL": served.url, "SIGNALBOX_KEY": KEYS["agent"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        request_id = process.stdout.readline().strip()
        assert request_id.startswith("req_"), request_id + process.stdout.read()
        decide(
            served.sign_in("approver"), request_id, "approved", edited='{"path": "old.txt"}', edited_field=""
        )
        output, _ = process.communicate(timeout=2 * PATIENCE)
        assert process.returncode == 0, output
        assert json.loads(output) == [False, True, {"path": "old.txt"}]
    finally:
        process.kill()
        process.wait(PATIENCE)

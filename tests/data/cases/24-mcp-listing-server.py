# ruff: noqa
"""An MCP server on stdin and stdout with an odd tools/list. Mode (argv 1): empty-cursor, stuck-cursor, null-cursor, many-pages,
one-bad-schema, same-name, odd-schemas, long-names."""

import json, sys

mode = sys.argv[1] if len(sys.argv) > 1 else "odd-schemas"


def tool(name, schema=None, **more):
    return {
        "name": name,
        "description": name,
        "inputSchema": schema if schema is not None else {"type": "object", "properties": {}},
        **more,
    }


def listing(cursor):
    if mode == "empty-cursor":
        return {"tools": [tool("first")], "nextCursor": ""} if cursor is None else {"tools": [tool("second")]}
    if mode == "stuck-cursor":
        return {"tools": [tool(f"t{i}") for i in range(8)], "nextCursor": "8"}
    if mode == "null-cursor":
        return {"tools": [tool("only")], "nextCursor": None}
    if mode == "many-pages":
        n = int(cursor or 0)
        return {
            "tools": [tool(f"t{n * 10 + i}") for i in range(10)],
            **({"nextCursor": str(n + 1)} if n < 29 else {}),
        }
    if mode == "one-bad-schema":
        return {
            "tools": [
                tool("good_one"),
                tool(
                    "any_of",
                    {
                        "anyOf": [
                            {"type": "object", "properties": {"id": {"type": "string"}}},
                            {"type": "object", "properties": {"slug": {"type": "string"}}},
                        ]
                    },
                ),
                tool("boolean_schema", True),
                tool("good_two"),
                tool("null_schema", None) | {"inputSchema": None},
                tool("out", outputSchema={"$id": "x", "description": "no type"}),
                tool("title_is_number", title=7),
            ]
        }
    if mode == "same-name":
        return {"tools": [tool("search"), tool("read"), tool("search")]}
    if mode == "long-names":
        return {
            "tools": [
                tool("a" * 64),
                tool("b" * 128),
                tool("c" * 201),
                tool("admin.tools.list"),
                tool("with space"),
                tool("ünïcödé"),
                tool("slash/name"),
                tool("Search"),
                tool("search"),
                tool("x__y"),
                tool(""),
            ]
        }
    return {
        "tools": [
            tool(
                "ref",
                {
                    "type": "object",
                    "$defs": {
                        "Node": {
                            "type": "object",
                            "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
                        }
                    },
                    "properties": {"root": {"$ref": "#/$defs/Node"}},
                },
            ),
            tool(
                "one_of",
                {"type": "object", "properties": {"t": {"oneOf": [{"type": "string"}, {"type": "null"}]}}},
            ),
            tool(
                "root_all_of",
                {
                    "type": "object",
                    "properties": {"mode": {"type": "string"}},
                    "allOf": [
                        {"if": {"properties": {"mode": {"const": "a"}}}, "then": {"required": ["mode"]}}
                    ],
                },
            ),
            tool("no_props", {"type": "object"}),
            tool(
                "typeless",
                {"type": "object", "properties": {"private": {"description": "x", "default": None}}},
            ),
            tool(
                "two_types", {"type": ["object", "null"], "properties": {"n": {"type": ["integer", "null"]}}}
            ),
            tool(
                "bad_name_prop",
                {
                    "type": "object",
                    "properties": {
                        "a b": {"type": "string"},
                        "$x": {"type": "string"},
                        "": {"type": "string"},
                    },
                },
            ),
            tool(
                "deep",
                {
                    "type": "object",
                    "properties": {
                        "a": {
                            "type": "object",
                            "properties": {"b": {"type": "object", "properties": {"c": {"type": "object"}}}},
                        }
                    },
                },
            ),
            tool(
                "annotated",
                annotations={"readOnlyHint": False, "destructiveHint": True},
                _meta={"x/y": 1},
                icons=[{"src": "data:image/png;base64,AA=="}],
            ),
        ]
    }


def result(name, args):
    big = 12345678901234567890123
    if name == "structured_only":
        return {
            "content": [],
            "structuredContent": {"id": big, "rows": [{"n": 1.0}]},
            "_meta": {"trace": "t"},
        }
    if name == "failed":
        return {"content": [{"type": "text", "text": "no such order"}], "isError": True}
    if name == "all_kinds":
        return {
            "content": [
                {"type": "text", "text": "\u001b[31mred\u001b[0m"},
                {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
                {"type": "audio", "data": "T2dnUw==", "mimeType": "audio/ogg"},
                {"type": "resource_link", "uri": "file:///srv/a.pdf", "name": "a.pdf"},
                {"type": "resource", "resource": {"uri": "file:///blob", "blob": "AAAA"}},
                {"type": "hologram", "x": 1},
            ]
        }
    if name == "echo_id":
        return {"content": [{"type": "text", "text": json.dumps(args)}], "structuredContent": args}
    return {"content": [{"type": "text", "text": "ok"}]}


for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    k = m.get("method")
    if k == "initialize":
        r = {
            "protocolVersion": m["params"]["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "odd", "version": "1"},
        }
    elif k == "tools/list":
        r = listing((m.get("params") or {}).get("cursor"))
        if mode == "results":
            r = {
                "tools": [
                    tool(
                        "structured_only",
                        outputSchema={"type": "object", "properties": {"id": {"type": "integer"}}},
                    ),
                    tool("failed", outputSchema={"type": "object"}),
                    tool("all_kinds"),
                    tool("echo_id", {"type": "object", "properties": {"id": {"type": "integer"}}}),
                ]
            }
    elif k == "tools/call":
        r = result(m["params"]["name"], m["params"].get("arguments"))
    elif k == "ping":
        r = {}
    else:
        print(
            json.dumps({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "no"}}),
            flush=True,
        )
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)

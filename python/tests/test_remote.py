"""A run read through a console, here a scripted one."""

from __future__ import annotations

import http.server
import json
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import zerofleet as zf

Respond = Callable[[http.server.BaseHTTPRequestHandler], tuple[int, bytes]]
TOKEN = "correct-horse"
FILES = {1: b"first", 2: b"second"}


def version(number: int, size: int | None = None) -> dict[str, Any]:
    """Returns a listed version."""
    size_bytes = len(FILES[number]) if size is None else size
    manifest = {"version": number, "training_step": 10 * number, "digest": "ab" * 32, "size_bytes": size_bytes}
    return {"manifest": manifest, "elo": 500.0 if number == 2 else None, "elo_low": None, "elo_high": None}


class Console:
    """The console of a run that keeps a version per page."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.size: int | None = None
        self.status = 200
        self.body: bytes | None = None
        self.is_cut = False

    def respond(self, request: http.server.BaseHTTPRequestHandler) -> tuple[int, bytes]:
        self.paths.append(request.path)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, b"<h1>Sign in</h1>"
        if self.body is not None:
            return self.status, self.body
        page = int(request.path.partition("page=")[2] or 1)
        state = {
            "name": "first",
            "game": "hex-5",
            "is_trained": True,
            "versions": [version(3 - page, self.size)],
            "pages": 2,
        }
        match request.path.partition("?")[0]:
            case "/run.json":
                return 200, json.dumps(state).encode()
            case "/metrics.json":
                return 200, json.dumps({"rows": [{"steps": 1, "unix_seconds": 5.0}, {"steps": 2}]}).encode()
            case "/weights/v2.safetensors":
                return 200, FILES[2]
            case _:
                return 404, b"<h1>No such version</h1><p>The run does &lt;not&gt; keep it.</p>"


@pytest.fixture
def console() -> Iterator[tuple[str, Console]]:
    """Serves a console on a free port."""
    scripted = Console()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = scripted.respond(self)
            self.send_response(status)
            if scripted.is_cut:
                self.send_header("Transfer-Encoding", "chunked")
                body = b"ff\r\n" + body
            else:
                self.send_header("Content-Length", str(len(body)))
            self.send_header("Location", "http://127.0.0.1:9/")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", scripted
        server.shutdown()
        thread.join()


def test_a_run_is_read_with_metrics_and_versions(console: tuple[str, Console]) -> None:
    url, scripted = console
    run = zf.connect(url, TOKEN)
    assert (run.name, run.game, run.is_running) == ("first", "hex-5", True)
    assert [row["steps"] for row in run.metrics()] == [1, 2]
    first, second = run.weights
    assert (first.version, second.version, second.step, second.elo) == (1, 2, 20, 500.0)
    assert not any(path.startswith("/weights") for path in scripted.paths), "files are downloaded when they are used"
    assert second.path.read_bytes() == b"second"
    assert json.loads(second.manifest.read_bytes())["training_step"] == 20
    assert second.path.exists()
    assert scripted.paths.count("/weights/v2.safetensors") == 1
    with pytest.raises(zf.Error, match="status 404: No such version: The run does <not> keep it"):
        _ = first.path


@pytest.mark.parametrize("size", [5, 7])
def test_a_file_of_another_size_is_an_error_and_leaves_no_weights(console: tuple[str, Console], size: int) -> None:
    url, scripted = console
    scripted.size = size
    last = zf.connect(url, TOKEN).weights[-1]
    with pytest.raises(zf.Error, match=f"v2 of .* does not have the {size} bytes"):
        _ = last.path
    assert not last.manifest.with_suffix(".safetensors").exists()


def test_an_evaluator_loads_the_downloaded_file(console: tuple[str, Console], monkeypatch: pytest.MonkeyPatch) -> None:
    def load(weights: pathlib.Path) -> bytes:
        assert weights.with_suffix(".json").is_file()
        return weights.read_bytes()

    monkeypatch.setattr(zf.Network, "load", load)
    # The versions hold the folder of the run.
    evaluator: object = zf.connect(console[0], TOKEN).weights[-1].evaluator()
    assert evaluator == b"second"


def test_refusals_and_unreachable_consoles_are_errors_without_the_token(console: tuple[str, Console]) -> None:
    url, scripted = console
    with pytest.raises(zf.Error, match="needs a valid token") as raised:
        zf.connect(url, "wrong-token")
    assert "wrong-token" not in str(raised.value)
    scripted.status, scripted.body = 302, b""
    with pytest.raises(zf.Error, match="status 302"):
        zf.connect(url, TOKEN)
    scripted.status, scripted.body = 200, b"<html>"
    with pytest.raises(zf.Error, match="is no response of a console"):
        zf.connect(url, TOKEN)
    scripted.body = b'{"name": "first"}'
    with pytest.raises(zf.Error, match="the console sent no `game`"):
        zf.connect(url, TOKEN)
    scripted.body = b'{"name": "first", "game": "hex-5", "versions": [{"manifest": {}}], "pages": 1}'
    with pytest.raises(zf.Error, match="the console sent no `version`"):
        _ = zf.connect(url, TOKEN).weights
    scripted.body, scripted.is_cut = b"{", True
    with pytest.raises(zf.Error, match=r"run\.json: IncompleteRead"):
        zf.connect(url, TOKEN)
    with pytest.raises(zf.Error, match="refused"):
        zf.connect("http://127.0.0.1:1")


def test_a_token_is_not_sent_without_encryption() -> None:
    with pytest.raises(zf.Error, match="use https"):
        zf.connect("http://192.0.2.1:7080", TOKEN)
    with pytest.raises(zf.Error, match="is no address of a console"):
        zf.connect("192.0.2.1:7080")

"""A fleet on another machine, through its web console."""

from __future__ import annotations

import functools
import html
import http.client
import json
import os
import pathlib
import re
import ssl
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from .errors import Error
from .metrics import Row, table
from .weights import Weights, of_manifest

_TIMEOUT_SECONDS = 30.0
_JSON_BYTES_MAX = 64 << 20
_PAGE_BYTES_MAX = 1 << 20
_TAG = re.compile(r"<h1>(.*?)</h1>|<p>(.*?)</p>", re.DOTALL)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirection, which could send the token to another host."""

    def redirect_request(self, *args: Any, **options: Any) -> None:
        return None


class _Page(dict[str, Any]):
    """A JSON object of a console."""

    def __missing__(self, key: str) -> Any:
        raise Error(f"the console sent no `{key}`")


class RemoteRun:
    """A run that is read through the web console of the fleet."""

    def __init__(self, url: str, token: str | None = None, ca: str | os.PathLike[str] | None = None) -> None:
        """Connects to a console: `http://127.0.0.1:7080`. Use `zerofleet.connect`."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Error(f"{url} is no address of a console, such as http://127.0.0.1:7080")
        is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        if token is not None and parts.scheme == "http" and not is_local:
            raise Error(f"{url} would send the token without encryption; use https")
        self.url = f"{parts.scheme}://{parts.netloc}"
        """Address of the console."""
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        tls = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca))
        # No proxy reaches this machine.
        proxies = [urllib.request.ProxyHandler({})] if is_local else []
        self._opener = urllib.request.build_opener(tls, _NoRedirect(), *proxies)
        self._folder = tempfile.TemporaryDirectory(prefix="zerofleet-", ignore_cleanup_errors=True)
        self._lock = threading.Lock()
        state = self._json("/run.json")
        self.name = str(state["name"])
        """Name of the run."""
        self.game = str(state["game"])
        """Name of the game."""

    def __repr__(self) -> str:
        return f"RemoteRun({self.url!r})"

    @property
    def is_running(self) -> bool:
        """True while a session trains the run."""
        return bool(self._json("/run.json")["is_trained"])

    def metrics(self) -> list[Row]:
        """Returns at most 500 rows of metrics, spread evenly over the run, as `Run.metrics` does."""
        return [dict(row) for row in self._json("/metrics.json")["rows"]]

    def frame(self, library: str | None = None) -> Any:
        """Returns the numbers of the metrics as a DataFrame of `pandas` or `polars`."""
        return table(self.metrics(), library)

    @property
    def weights(self) -> list[Weights]:
        """The kept weights versions, in ascending order. The files are downloaded when they are first used."""
        found: dict[int, Weights] = {}
        page, pages = 1, 1
        while page <= pages:
            state = self._json(f"/run.json?page={page}")
            found |= {version.version: version for version in map(self._version, state["versions"])}
            page, pages = page + 1, int(state["pages"])
        return [found[version] for version in sorted(found)]

    def _version(self, listed: dict[str, Any]) -> Weights:
        text = listed["manifest"]
        number, size = int(text["version"]), int(text["size_bytes"])
        file = pathlib.Path(self._folder.name) / f"v{number:06}.json"
        file.write_text(json.dumps(text), encoding="utf-8")
        # The function holds this object, and with it the folder.
        rating = listed["elo"], listed["elo_low"], listed["elo_high"]
        return of_manifest(text, rating, file, functools.partial(self._download, number, size, file))

    def _download(self, version: int, size: int, manifest: pathlib.Path) -> None:
        target = manifest.with_suffix(".safetensors")
        with self._lock:
            if target.exists():
                return
            data = self._get(f"/weights/v{version}.safetensors", size + 1)
            if len(data) != size:
                raise Error(f"v{version} of {self.url} does not have the {size} bytes of the manifest")
            part = target.with_suffix(".part")
            part.write_bytes(data)
            os.replace(part, target)

    def _json(self, path: str) -> _Page:
        text = self._get(path, _JSON_BYTES_MAX)
        try:
            return _Page(json.loads(text, object_hook=_Page))
        except (ValueError, TypeError) as error:
            raise Error(f"{self.url}{path} is no response of a console: {error}") from error

    def _get(self, path: str, bytes_max: int) -> bytes:
        """Returns a page, cut after a number of bytes."""
        request = urllib.request.Request(self.url + path, headers=self._headers)
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
                return bytes(response.read(bytes_max))
        except urllib.error.HTTPError as error:
            with error:
                raise Error(f"{self.url}{path}: {_reason(error)}") from error
        except (OSError, http.client.HTTPException) as error:
            raise Error(f"{self.url}{path}: {getattr(error, 'reason', error)}") from error


def _reason(error: urllib.error.HTTPError) -> str:
    """Returns the status with the words of the page."""
    if error.code == 401:
        return "the console needs a valid token with the scope view"
    found = _TAG.findall(error.read(_PAGE_BYTES_MAX).decode(errors="replace"))
    return ": ".join([f"status {error.code}", *(html.unescape(first or second) for first, second in found[:2])])


def connect(url: str, token: str | None = None, *, ca: str | os.PathLike[str] | None = None) -> RemoteRun:
    """Returns the run of a fleet elsewhere, through the web console at `url`.

    `token` has the scope `view`; `ca` is a file with the certificate authority of the console. Raises `Error` with the
    reason of the console.
    """
    return RemoteRun(url, token, ca)

"""A server of the part of the S3 protocol that s3fs uses, for one bucket, in memory."""

from __future__ import annotations

import hashlib
import threading
import time
import urllib.parse
import xml.sax.saxutils
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BUCKET = "programs"
_DATE = "2026-01-02T03:04:05.000Z"


class ObjectStore(ThreadingHTTPServer):
    """Objects by key. `requests` are (method, key) in order; with `status` every request but listings fails so; `delay`
    seconds go by before an answer; a `writable` of False forbids PUT.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.parts: dict[tuple[str, str], dict[int, bytes]] = {}
        self.requests: list[tuple[str, str]] = []
        self.status: int | None = None
        self.delay = 0.0
        self.writable = True
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def environment(self) -> dict[str, str]:
        """The variables with which s3fs finds it."""
        return {
            "FSSPEC_S3_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that ended is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or every answer waits 40 ms for an acknowledgement
    server: ObjectStore

    def _begin(self) -> tuple[str, dict[str, str], bytes]:
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        bucket, _, key = urllib.parse.unquote(parts.path).lstrip("/").partition("/")
        body = self._body()
        self.server.requests.append((self.command, key))
        time.sleep(self.server.delay)
        if self.server.status is not None:
            raise _Failed(self.server.status, "Broken")
        if bucket != BUCKET:
            raise _Failed(404, "NoSuchBucket")
        return key, query, body

    def _body(self) -> bytes:
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _handle(self) -> None:
        try:
            key, query, body = self._begin()
            getattr(self, f"_{self.command.lower()}")(key, query, body)
        except _Failed as failed:
            self._answer(failed.status, f"<Error><Code>{failed.code}</Code></Error>".encode())

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _handle

    def _get(self, key: str, query: dict[str, str], body: bytes) -> None:
        if not key:
            self._list(query)
            return
        data = self._object(key)
        if wanted := self.headers.get("Range"):
            first, last = wanted.removeprefix("bytes=").split("-")
            part = data[int(first) : int(last) + 1 if last else None]
            self._answer(206, part, Content_Range=f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}")
        else:
            self._answer(200, data, ETag=_tag(data))

    def _head(self, key: str, query: dict[str, str], body: bytes) -> None:
        data = self._object(key) if key else b""
        date = "Fri, 02 Jan 2026 03:04:05 GMT"
        self._answer(200, Content_Length=str(len(data)), ETag=_tag(data), Last_Modified=date)

    def _put(self, key: str, query: dict[str, str], body: bytes) -> None:
        if not self.server.writable:
            raise _Failed(403, "AccessDenied")
        if "uploadId" in query:
            self.server.parts[key, query["uploadId"]][int(query["partNumber"])] = body
        else:
            self.server.objects[key] = body
        self._answer(200, ETag=_tag(body))

    def _post(self, key: str, query: dict[str, str], body: bytes) -> None:
        if "delete" in query:
            for name in _between(body.decode(), "Key"):
                self.server.objects.pop(name, None)
            self._answer(200, b"<DeleteResult></DeleteResult>")
        elif "uploads" in query:
            upload = str(len(self.server.parts))
            self.server.parts[key, upload] = {}
            text = f"<Bucket>{BUCKET}</Bucket><Key>{key}</Key><UploadId>{upload}</UploadId>"
            self._xml("InitiateMultipartUploadResult", text)
        else:
            parts = self.server.parts.pop((key, query["uploadId"]))
            self.server.objects[key] = b"".join(parts[number] for number in sorted(parts))
            self._xml("CompleteMultipartUploadResult", f"<Key>{key}</Key>")

    def _delete(self, key: str, query: dict[str, str], body: bytes) -> None:
        self.server.objects.pop(key, None)
        self._answer(204)

    def _list(self, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        contents, folders = "", set()
        for key, data in sorted(self.server.objects.items()):
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
                continue
            name = xml.sax.saxutils.escape(key)
            contents += f"<Contents><Key>{name}</Key><Size>{len(data)}</Size><ETag>{_tag(data)}</ETag>"
            contents += f"<LastModified>{_DATE}</LastModified></Contents>"
        common = "".join(f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in sorted(folders))
        self._xml("ListBucketResult", f"<Name>{BUCKET}</Name><IsTruncated>false</IsTruncated>{contents}{common}")

    def _xml(self, name: str, text: str) -> None:
        self._answer(200, f"<{name}>{text}</{name}>".encode(), Content_Type="application/xml")

    def _object(self, key: str) -> bytes:
        try:
            return self.server.objects[key]
        except KeyError:
            raise _Failed(404, "NoSuchKey") from None

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Failed(Exception):
    def __init__(self, status: int, code: str) -> None:
        self.status, self.code = status, code


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


def _between(text: str, name: str) -> list[str]:
    return [piece.split(f"</{name}>")[0] for piece in text.split(f"<{name}>")[1:]]

"""Frames over pipes: a length, a kind, a payload. All numbers are little-endian. See docs/environments.md."""

import os
import struct

MAGIC = b"ZFGY"
VERSION = 1

HELLO, REFUSAL, BEGIN, STEP, ANSWER, RENDER, PICTURE = range(1, 8)

FLOATS, BYTES = 0, 1

TERMINATED, TRUNCATED, FAILED = 1, 2, 4

MESSAGE_BYTES_MAX = 300
REFUSAL_BYTES_MAX = 4000

_HEAD = struct.Struct("<IB")


def _text(message, bytes_max):
    return message.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore").encode()


def _read_exactly(source, view):
    """Fills `view` from a file descriptor; false at the end of the file."""
    while view:
        count = os.readv(source, [view])
        if count == 0:
            return False
        view = view[count:]
    return True


def _write_all(sink, parts):
    parts = [memoryview(part).cast("B") for part in parts if len(part)]
    while parts:
        count = os.writev(sink, parts)
        while parts and count >= len(parts[0]):
            count -= len(parts.pop(0))
        if count:
            parts[0] = parts[0][count:]


def send_hello(sink, count, actions, steps_max, dtype, shape, draws):
    """Describes the environments of this process; `shape` is [C, H, W], `steps_max` is 0 without a limit.

    A last byte says that the environments draw pictures.
    """
    payload = MAGIC + struct.pack("<HIIIB3I", VERSION, count, actions, steps_max, dtype, *shape)
    payload += b"\1" if draws else b""
    _write_all(sink, [_HEAD.pack(1 + len(payload), HELLO), payload])


def send_refusal(sink, message):
    """Gives the reason why the environment cannot be run; the process ends afterwards."""
    payload = _text(message, REFUSAL_BYTES_MAX)
    _write_all(sink, [_HEAD.pack(1 + len(payload), REFUSAL), payload])


def send_answer(sink, rewards, flags, observations, messages):
    """Answers a request: rewards float32 [n], a byte of flags each, observations [n, C, H, W].

    There is a message for each failed environment.
    """
    texts = [_text(message, MESSAGE_BYTES_MAX) for message in messages]
    tail = b"".join(struct.pack("<H", len(text)) + text for text in texts)
    length = 1 + 4 + rewards.nbytes + len(flags) + observations.nbytes + len(tail)
    head = _HEAD.pack(length, ANSWER) + struct.pack("<I", len(rewards))
    _write_all(sink, [head, rewards, flags, observations.reshape(-1), tail])


def send_picture(sink, picture, message):
    """Answers a request for a picture: a PNG in base64, or, if it is None, the reason."""
    flags, payload = (FAILED, _text(message, MESSAGE_BYTES_MAX)) if picture is None else (0, picture)
    _write_all(sink, [_HEAD.pack(2 + len(payload), PICTURE), bytes([flags]), payload])


def read_request(source):
    """Returns (kind, environments, values), or None at the end of the file.

    The values are seeds for BEGIN and actions for STEP; RENDER has none.
    """
    head = bytearray(_HEAD.size)
    if not _read_exactly(source, memoryview(head)):
        return None
    length, kind = _HEAD.unpack(head)
    payload = bytearray(length - 1)
    if not _read_exactly(source, memoryview(payload)):
        return None
    (count,) = struct.unpack_from("<I", payload)
    environments = struct.unpack_from(f"<{count}I", payload, 4)
    if kind == RENDER:
        return kind, environments, ()
    values = struct.unpack_from(f"<{count}{'Q' if kind == BEGIN else 'I'}", payload, 4 + 4 * count)
    return kind, environments, values

"""Pictures of environments for spectators: small PNGs in base64. Needs numpy only."""

import base64
import struct
import zlib

import numpy as np

# The longest side, in pixels.
SIDE_MAX = 160
# The longest picture in base64, by the protocol.
BYTES_MAX = 65_536


def encode(frame):
    """Returns the picture that `render()` returned; rows and columns are left out until it is small."""
    frame = np.asarray(frame)
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] not in (3, 4) or 0 in frame.shape:
        raise ValueError(f"render() returned the shape {frame.shape} of {frame.dtype}; [H, W, 3] of uint8 is needed")
    stride = -(-max(frame.shape[:2]) // SIDE_MAX)
    while len(picture := base64.b64encode(png(frame[::stride, ::stride, :3]))) > BYTES_MAX:
        stride += 1
    return picture


def png(pixels):
    """Returns pixels [H, W, 3] as a PNG."""
    height, width, _ = pixels.shape
    # The byte before each row names the filter: none.
    rows = np.zeros((height, 1 + 3 * width), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )

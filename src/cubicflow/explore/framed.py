"""Arrays and a JSON header as one binary answer.

    4 bytes   CFX1
    4 bytes   the length of the header, little-endian
    header    JSON, padded with spaces until the arrays begin at a multiple of 8
    arrays    one after the other, each at a multiple of 8 from there

The header has a key ``arrays``: for each name the dtype, the shape and the offset. static/framed.js reads it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"CFX1"
DTYPES = {"float32": "<f4", "float64": "<f8", "int32": "<i4", "uint8": "|u1"}


def framed(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> bytes:
    """One answer. Arrays of other dtypes than float32, float64, int32 and uint8 are refused.

    >>> answer = framed({"a": 1}, {"x": np.arange(3, dtype=np.float32)})
    >>> unframed(answer)[0]["a"], unframed(answer)[1]["x"].tolist()
    (1, [0.0, 1.0, 2.0])
    """
    about, parts, offset = {}, [], 0
    for name, array in (arrays or {}).items():
        content = np.ascontiguousarray(array, DTYPES[array.dtype.name]).tobytes()
        about[name] = {"dtype": array.dtype.name, "shape": list(array.shape), "offset": offset}
        parts += [content, bytes(-len(content) % 8)]
        offset += len(content) + -len(content) % 8
    text = json.dumps({**header, "arrays": about}, allow_nan=False, ensure_ascii=False).encode()
    text += b" " * (-(len(MAGIC) + 4 + len(text)) % 8)
    return b"".join([MAGIC, struct.pack("<I", len(text)), text, *parts])


def unframed(answer: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header and the arrays of an answer.

    >>> unframed(framed({}, {"x": np.zeros((2, 0), np.uint8)}))[1]["x"].shape
    (2, 0)
    """
    if answer[:4] != MAGIC:
        raise ValueError("this is no framed answer")
    (length,) = struct.unpack("<I", answer[4:8])
    header, start = json.loads(answer[8 : 8 + length]), 8 + length
    arrays = {}
    for name, about in header["arrays"].items():
        count = int(np.prod(about["shape"], dtype=np.int64))
        found = np.frombuffer(answer, DTYPES[about["dtype"]], count, start + about["offset"])
        arrays[name] = found.reshape(about["shape"])
    return header, arrays

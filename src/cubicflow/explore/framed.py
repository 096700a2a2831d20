"""A binary answer with a JSON header and arrays.

    4 bytes   CFX1
    4 bytes   the length of the header, little-endian
    header    JSON, padded with spaces so that the arrays start at a multiple of 8
    arrays    one after the other; offsets count from the first array and are multiples of 8

The key ``arrays`` of the header has the dtype, the shape and the offset of each array. static/framed.js reads answers.
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
    """Encode a header and arrays as one answer. Raises KeyError for dtypes except float32, float64, int32 and uint8.

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
    """Decode an answer to its header and arrays.

    >>> unframed(framed({}, {"x": np.zeros((2, 0), np.uint8)}))[1]["x"].shape
    (2, 0)
    """
    if answer[:4] != MAGIC:
        raise ValueError(f"a framed answer starts with {MAGIC!r}, got {answer[:4]!r}")
    (length,) = struct.unpack("<I", answer[4:8])
    header, start = json.loads(answer[8 : 8 + length]), 8 + length
    arrays = {}
    for name, about in header["arrays"].items():
        count = int(np.prod(about["shape"], dtype=np.int64))
        found = np.frombuffer(answer, DTYPES[about["dtype"]], count, start + about["offset"])
        arrays[name] = found.reshape(about["shape"])
    return header, arrays

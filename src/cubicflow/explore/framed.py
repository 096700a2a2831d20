"""A binary answer: a safetensors file whose metadata has one key, ``answer``, with the JSON header.

safetensors aligns every array, so static/answers.js reads arrays in place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

DTYPES = ("float32", "float64", "int32", "uint8")  # the dtypes that static/answers.js reads


def framed(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> bytes:
    """Encode a header and arrays as one answer. Raises TypeError for dtypes except float32, float64, int32 and uint8.

    >>> header, arrays = unframed(framed({"a": 1}, {"x": np.arange(3, dtype=np.float32)}))
    >>> header["a"], arrays["x"].tolist()
    (1, [0.0, 1.0, 2.0])
    """
    tensors = {name: np.ascontiguousarray(array) for name, array in (arrays or {}).items()}
    for name, array in tensors.items():
        if array.dtype.name not in DTYPES:
            raise TypeError(f"array {name!r} has dtype {array.dtype.name}; convert it to one of {', '.join(DTYPES)}")
    answer: bytes = save(tensors, {"answer": json.dumps(header, allow_nan=False, ensure_ascii=False)})
    return answer


def unframed(answer: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Decode an answer to its header and arrays. Raises ValueError if it is damaged.

    >>> unframed(framed({}, {"x": np.zeros((2, 0), np.uint8)}))[1]["x"].shape
    (2, 0)
    """
    try:
        arrays = load(answer)
        about = json.loads(answer[8 : 8 + int.from_bytes(answer[:8], "little")])
        return dict(json.loads(about["__metadata__"]["answer"])), arrays
    except Exception as error:  # safetensors has its own class of errors
        raise ValueError(f"not an answer of the page: {error}") from None

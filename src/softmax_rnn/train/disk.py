"""A disk that is full, or too small for a file, said in one line.

>>> with disk_errors("the report"):
...     raise OSError(errno.ENOSPC, "No space left on device")
Traceback (most recent call last):
softmax_rnn.train.disk.DiskError: the report could not be written: No space left on device
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from safetensors import SafetensorError

from softmax_rnn.errors import RunError

_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})


class DiskError(RunError):
    """Something could not be written; what was written before is untouched."""


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Inside, errors of the disk become a `DiskError` that names ``what``; all others pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK:
            raise
        raise DiskError(f"{what} could not be written: {error.strerror or error}") from error
    except SafetensorError as error:
        raise DiskError(f"{what} could not be written: {error}") from error

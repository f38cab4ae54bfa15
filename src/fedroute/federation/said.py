"""log.txt of a hub or a site: a line for each thing that happened, with its time."""

import logging
import logging.handlers
from collections.abc import Callable
from pathlib import Path

FORMAT = logging.Formatter("%(asctime)s.%(msecs)03d %(message)s", "%Y-%m-%d %H:%M:%S")


def say_to(file: Path) -> Callable[[str], None]:
    """A function that appends a line to the file; 10 MB, and five older files, are kept."""
    handler = logging.handlers.RotatingFileHandler(file, maxBytes=10 << 20, backupCount=5, encoding="utf-8")
    handler.setFormatter(FORMAT)
    logger = logging.Logger(str(file))  # not in the tree of loggers: NVFLARE's configuration does not reach it
    logger.addHandler(handler)
    return lambda text: logger.info("%s", text)

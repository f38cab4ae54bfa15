"""A hub that keeps a copy of every frame which comes over its connections, decrypted, in FOLDER/captured."""

import struct
import threading
from pathlib import Path
from typing import Any

from nvflare.fuel.f3.sfm.conn_manager import ConnManager

from fedroute.federation.nvflare_hub import HubComponent


class CapturingHub(HubComponent):
    def __init__(self, folder: str, **options: Any) -> None:
        usual, lock, file = ConnManager.process_frame_task, threading.Lock(), Path(folder) / "captured"

        def kept(manager: ConnManager, connection: Any, frame: bytes) -> None:
            with lock, file.open("ab") as f:
                f.write(struct.pack(">I", len(frame)) + bytes(frame))
            usual(manager, connection, frame)

        ConnManager.process_frame_task = kept
        super().__init__(folder, **options)


def frames(folder: Path) -> list[bytes]:
    """What was captured."""
    data, found, at = (folder / "captured").read_bytes(), list[bytes](), 0
    while at + 4 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found

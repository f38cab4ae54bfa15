"""A site that has a certificate and does what it likes, and a hub and a site whose doors stand open: components for
the tests of what the guards keep out."""

import json
import socketserver
import threading
import time
from pathlib import Path
from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.fuel.f3.message import Message
from nvflare.private.admin_defs import Message as AdminMessage

from fedroute.federation.nvflare_cell import Guard
from fedroute.federation.nvflare_hub import HubComponent
from fedroute.federation.nvflare_quick import APP
from fedroute.federation.nvflare_site import SiteComponent


class Open(Guard):
    def _fault(self, message: Any, name: str) -> str:
        return ""


class OpenHub(HubComponent):
    """A hub without a guard, as NVFLARE comes."""

    def guard(self, cell: CoreCell) -> Guard:
        return Open(cell, bool, frozenset(), (), self.say)


class OpenSite(SiteComponent):
    """A site without a guard."""

    def guard(self, cell: CoreCell) -> Guard:
        return Open(cell, bool, frozenset(), (), self.say)


class Rogue(OpenSite):
    """Sends what it is told at FOLDER/rogue: {target, channel, topic, shell?: command, body?, claim?: an origin}."""

    def _up(self, event: str, context: FLContext) -> None:
        super()._up(event, context)
        rogue = self

        class Line(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                asked = json.loads(self.rfile.readline())
                self.wfile.write(json.dumps(rogue.send(asked)).encode() + b"\n")

        path = Path(self.folder) / "rogue"
        path.unlink(missing_ok=True)
        server = socketserver.ThreadingUnixStreamServer(str(path), Line)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def quick(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Sends a quick message with these headers to the hub. known: whom of `others` it could send one to; answers:
        how many came within a second."""
        assert self.cell
        over, came = self.cell.core_cell.communicator, list[object]()
        headers = asked["quick"] | ({"number": b"12345678"} if "number" in asked["quick"] else {})
        own = over.conn_manager.receivers[APP]
        usual = own.process_message

        def listening(*what: Any) -> None:
            came.append(what)
            usual(*what)

        own.process_message = listening
        over.send(over.find_endpoint("server"), APP, Message(headers, b"\x80" + bytes(asked.get("bytes", 0))))
        time.sleep(1.0)
        own.process_message = usual
        return {"sent": True, "known": [n for n in asked["others"] if over.find_endpoint(n)], "answers": len(came)}

    def send(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert self.cell
        if "quick" in asked:
            return self.quick(asked)
        body: Any = asked.get("body", "").encode()
        if "shell" in asked:
            body = AdminMessage(topic="sys.shell", body=asked["shell"])
        core = self.cell.core_cell
        if claim := asked.get("claim"):
            core.add_outgoing_request_filter(
                asked["channel"], asked["topic"], lambda m: m.set_header(MessageHeaderKey.ORIGIN, claim)
            )
        if asked.get("stream"):
            reply = self.cell.send_request(
                channel=asked["channel"], topic=asked["topic"], target=asked["target"],
                request=new_cell_message({}, body), timeout=asked["timeout"],
            )  # fmt: skip
        else:
            reply = core.send_request(
                asked["channel"], asked["topic"], asked["target"], new_cell_message({}, body), timeout=asked["timeout"]
            )
        core.out_req_filter_reg.set(asked["channel"], asked["topic"], None)
        said = reply.payload.body if isinstance(reply.payload, AdminMessage) else repr(reply.payload)
        return {"code": reply.get_header(MessageHeaderKey.RETURN_CODE), "said": said}

"""Words that several parts of an advice use, in English and Chinese."""

from collections.abc import Sequence

from fedroute.said import Said

__all__ = ["KIND", "LEVEL", "NOTHING", "Said", "joined"]


def joined(parts: Sequence[Said]) -> Said:
    """ "a; b", of those that say something."""
    some = [p for p in parts if p]
    return Said("; ".join(some), "；".join(p.zh for p in some))


NOTHING = Said("", "")
KIND = {"label": "标签", "feature": "特征", "quantity": "数据量", "time": "时间", "concept": "含义"}
LEVEL = {"none": "无", "mild": "轻微", "clear": "明显", "strong": "强烈", "unknown": "无法判断"}

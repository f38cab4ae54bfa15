"""Models whose weights have roles: the zoo (`build`, `MODELS`), and any module of yours (`adopt`)."""

from fedroute.models.adopt import adopt
from fedroute.models.zoo import MODELS, Model, build

__all__ = ["MODELS", "Model", "adopt", "build"]

"""The parts of a config file, as checked models. An unknown key is an error; see `load` for the messages."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from fedroute.weighting import Weighting


class Training(BaseModel):
    """`training:` how a run is trained. Rounds and epochs are counts; lr is that of the clients."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    rounds: int = Field(50, ge=1)
    local_epochs: int | None = Field(None, ge=1)  # 1 where local_steps is not given either
    local_steps: int | None = Field(None, ge=1)
    batch_size: int = Field(32, ge=1)
    lr: float = Field(0.05, gt=0)
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: float = Field(0.0, ge=0, lt=1)
    nesterov: bool = False
    weight_decay: float = Field(0.0, ge=0)
    schedule: str | dict[str, float | str] = "constant"
    clients_per_round: float = Field(1.0, gt=0)
    sampling: Literal["all", "uniform", "weighted"] = "uniform"
    weighting: Weighting | None = None  # the algorithm's own where not given
    server_optimizer: str | dict[str, float | str] = "sgd"
    server_lr: float = Field(1.0, gt=0)
    quorum: float = Field(0.5, ge=0, le=1)  # the share of the chosen that must answer; at least one
    evaluate_every: int | None = Field(None, ge=1)  # rounds; None: spaced so that it adds at most 30 % to a run
    checkpoint_every: int | None = Field(None, ge=1)  # rounds; None: spaced likewise, and at the end
    alone: bool = True  # also train every client alone at the same budget, for the ledger

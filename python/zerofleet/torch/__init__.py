"""The networks of zerofleet as PyTorch modules: `load`, `save`, new networks, and losses for an own learner."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("zerofleet.torch needs PyTorch 2.4 or later: pip install torch") from error

from .files import load as load
from .files import save as save
from .networks import AlphaZeroNet as AlphaZeroNet
from .networks import LatentOutput as LatentOutput
from .networks import MuZeroNet as MuZeroNet
from .networks import Network as Network
from .networks import Output as Output
from .networks import ReturnsNet as ReturnsNet
from .networks import StochasticMuZeroNet as StochasticMuZeroNet
from .networks import alphazero_loss as alphazero_loss
from .networks import categorical_loss as categorical_loss
from .networks import network as network

use super::Value;
use crate::activation::Kept;

/// An operation on per-position values.
#[derive(Debug)]
pub(super) enum Operation {
    /// Concatenated observations, by cell.
    Observe { observations: Vec<Observation>, y: Value },
    /// The action of a step as a one-hot row `[A]`.
    Act { step: usize, y: Value },
    /// A matrix with bias, and ReLU if `rectifies`.
    Linear { matrix: usize, x: Value, y: Value, rectifies: bool },
    /// The activation function of the network, applied elementwise.
    Apply { x: Value, y: Value },
    /// A matrix with layer norm.
    Dense(Dense),
    /// A convolution with output z, which a batch norm reads. The gradient of the norm's output is stored for `n`.
    Convolve { convolution: usize, norm: usize, x: Value, z: Value, n: Value },
    /// A convolution without a norm.
    Product { convolution: usize, x: Value, y: Value },
    /// A norm of single positions.
    Normalise(Normalised),
    /// Attention sums over the values, from queries, keys and values.
    Attend { attention: usize, qkv: Value, y: Value },
    /// The sum of two values.
    Add { x: Value, beside: Value, y: Value },
    /// A batch norm and the operations up to the next convolution.
    Activate(Activated),
    /// Mean, scaled mean and maximum per channel over the cells.
    Pool { x: Value, y: Value },
    /// `(x − min) / (max − min + ε)` over the numbers of a position.
    Rescale { x: Value, y: Value },
    /// The channels of `state` and `beside`, concatenated by cell.
    Join(Join),
    /// Values minus the mean over the batch.
    Centre { centre: usize, x: Value, y: Value },
    /// The one-hot row of the largest number; the gradient is passed straight through.
    Argmax { encoding: Value, code: Value },
    /// A loss, where the backward pass starts.
    Loss(Loss),
}

/// A matrix with layer norm, optional skip connection and optional ReLU.
#[derive(Debug)]
pub(super) struct Dense {
    pub(super) layer: usize,
    pub(super) x: Value,
    pub(super) z: Value,
    /// Mean and inverse standard deviation of z.
    pub(super) moments: Value,
    pub(super) y: Value,
    /// Value added before ReLU.
    pub(super) skip: Option<Value>,
    pub(super) rectifies: bool,
    /// Output to which y is added as a skip connection.
    pub(super) besides: Option<Value>,
}

/// A norm of single positions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Normalised {
    pub(super) norm: usize,
    pub(super) x: Value,
    /// Mean and inverse standard deviation of each cell or group.
    pub(super) moments: Value,
    pub(super) y: Value,
    /// Value that stores the gradient of y: y itself, unless an activation after the norm overwrites that gradient.
    pub(super) n: Value,
}

/// The channels of two values, concatenated in each of `cells` cells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Join {
    /// `[cells, C]`.
    pub(super) state: Value,
    /// `[D, cells]`.
    pub(super) beside: Value,
    pub(super) cells: usize,
    /// Share of the gradient that reaches `state`.
    pub(super) share: f32,
    /// `[cells, C + D]`.
    pub(super) x: Value,
}

/// A batch norm, and everything after it up to the next convolution.
#[derive(Debug)]
pub(super) struct Activated {
    pub(super) activation: usize,
    pub(super) norm: usize,
    pub(super) z: Value,
    /// Value that stores the gradient of the norm's output: y, unless the activation overwrites that gradient.
    pub(super) n: Value,
    pub(super) y: Value,
    pub(super) skip: Option<Value>,
    /// Output to which y is added as a skip connection.
    pub(super) besides: Option<Value>,
    /// Intermediate values, where the activation has any.
    pub(super) kept: Kept<Option<Value>>,
}

/// A batch norm over the outputs of one or more uses of a convolution.
#[derive(Debug)]
pub(super) struct Norm {
    pub(super) convolution: usize,
    /// Phase in which the last use is convolved; `None` after a norm of single positions, which leaves the batch norm
    /// nothing to do.
    pub(super) phase: Option<usize>,
}

/// An observation of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Observation {
    /// Observation of the position itself.
    Root,
    /// Observation after the action of a step (0-based).
    After(usize),
}

/// A loss with the values that it reads. Steps are 0-based; the state of step k is the state before action k.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Loss {
    /// Policy loss of a state.
    Policy { step: usize, logits: Value },
    /// Value loss of a state.
    Value { step: usize, logits: Value },
    /// Loss of the reward of a step's action.
    Reward { step: usize, logits: Value },
    /// Value loss of the afterstate of a step's action.
    Afterstate { step: usize, logits: Value },
    /// Loss of the chance code after a step's action.
    Chance { step: usize, logits: Value, encoding: Value },
    /// Consistency loss of the state after a step's action.
    Consistency { step: usize, predicted: Value, observed: Value },
}

impl Loss {
    /// Returns the values that receive the first gradients.
    pub(super) fn inputs(&self) -> Vec<Value> {
        match *self {
            Self::Policy { logits, .. }
            | Self::Value { logits, .. }
            | Self::Reward { logits, .. }
            | Self::Afterstate { logits, .. } => vec![logits],
            Self::Chance { logits, encoding, .. } => vec![logits, encoding],
            Self::Consistency { predicted, .. } => vec![predicted],
        }
    }
}

impl Operation {
    /// Returns the computed values.
    pub(super) fn outputs(&self) -> Vec<Value> {
        match self {
            Self::Observe { y, .. } | Self::Act { y, .. } | Self::Linear { y, .. } | Self::Apply { y, .. } => vec![*y],
            Self::Product { y, .. } | Self::Attend { y, .. } | Self::Add { y, .. } => vec![*y],
            Self::Normalise(Normalised { moments, y, .. }) => vec![*moments, *y],
            Self::Dense(dense) => vec![dense.z, dense.moments, dense.y],
            Self::Convolve { z, .. } => vec![*z],
            Self::Activate(Activated { y, kept, .. }) => std::iter::once(*y).chain(forward(kept)).collect(),
            Self::Pool { y, .. } | Self::Rescale { y, .. } | Self::Centre { y, .. } => vec![*y],
            Self::Join(join) => vec![join.x],
            Self::Argmax { code, .. } => vec![*code],
            Self::Loss(_) => Vec::new(),
        }
    }

    /// Returns the values that the operation reads and that receive gradients from it.
    pub(super) fn inputs(&self) -> Vec<Value> {
        match self {
            Self::Observe { .. } | Self::Act { .. } => Vec::new(),
            Self::Linear { x, .. }
            | Self::Apply { x, .. }
            | Self::Product { x, .. }
            | Self::Normalise(Normalised { x, .. })
            | Self::Attend { qkv: x, .. }
            | Self::Convolve { x, .. }
            | Self::Pool { x, .. }
            | Self::Rescale { x, .. }
            | Self::Centre { x, .. } => vec![*x],
            Self::Add { x, beside, .. } => vec![*x, *beside],
            Self::Dense(dense) => vec![dense.x],
            Self::Activate(activated) => vec![activated.z],
            Self::Join(Join { state, beside, .. }) => vec![*state, *beside],
            Self::Argmax { encoding, .. } => vec![*encoding],
            Self::Loss(loss) => loss.inputs(),
        }
    }

    /// Returns the values read in the forward pass.
    pub(super) fn read_forward(&self) -> Vec<Value> {
        let skip = match self {
            Self::Dense(Dense { skip, .. }) | Self::Activate(Activated { skip, .. }) => *skip,
            _ => None,
        };
        self.inputs().into_iter().chain(skip).collect()
    }

    /// Returns the values that the backward pass or the weight gradient may read.
    pub(super) fn read_backward(&self) -> Vec<Value> {
        let observed = match self {
            Self::Add { .. } => return Vec::new(),
            Self::Attend { qkv, .. } => return vec![*qkv],
            Self::Normalise(Normalised { x, moments, .. }) => return vec![*x, *moments],
            Self::Loss(Loss::Consistency { observed, .. }) => Some(*observed),
            _ => None,
        };
        self.outputs().into_iter().chain(self.inputs()).chain(observed).collect()
    }

    /// Returns the values with gradients that the backward pass starts from.
    pub(super) fn results(&self) -> Vec<Value> {
        match self {
            Self::Dense(dense) => vec![dense.y],
            Self::Convolve { n, .. } | Self::Normalise(Normalised { n, .. }) => vec![*n],
            Self::Activate(activated) => vec![activated.y],
            _ => self.outputs(),
        }
    }

    /// Returns the other values with gradients that the backward pass writes: outputs before ReLU, which are
    /// overwritten, and intermediate values.
    pub(super) fn changed(&self) -> Vec<Value> {
        match self {
            Self::Linear { y, rectifies: true, .. } => vec![*y],
            Self::Dense(dense) => vec![dense.y, dense.z],
            Self::Convolve { z, .. } => vec![*z],
            Self::Activate(Activated { y, n, kept, .. }) => {
                let of_matrices = [kept.of_hidden, kept.of_terms].into_iter().flatten();
                [*y, *n].into_iter().chain(of_matrices).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns values that only the backward pass reads, apart from [`read_backward`](Self::read_backward).
    pub(super) fn read_besides(&self) -> Vec<Value> {
        match self {
            Self::Dense(Dense { moments, besides, .. }) => std::iter::once(*moments).chain(*besides).collect(),
            Self::Activate(Activated { besides, skip, kept, .. }) => {
                besides.iter().chain(skip).copied().chain(forward(kept)).collect()
            }
            Self::Loss(Loss::Consistency { observed, .. }) => vec![*observed],
            _ => Vec::new(),
        }
    }

    /// Returns whether the backward pass needs the gradients of all positions, as a mean over the batch does; it then
    /// runs one phase later.
    pub(super) fn waits_for_the_batch(&self) -> bool {
        matches!(self, Self::Centre { .. })
    }
}

/// Returns the intermediate values that an activation computes in the forward pass.
pub(super) fn forward(kept: &Kept<Option<Value>>) -> impl Iterator<Item = Value> + use<> {
    [kept.squeezed, kept.hidden, kept.terms].into_iter().flatten()
}

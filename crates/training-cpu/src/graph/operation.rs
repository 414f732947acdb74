use super::Value;
use crate::activation::Kept;

/// An operation on the numbers of each position.
#[derive(Debug)]
pub(super) enum Operation {
    /// Observations beside each other, by cell.
    Observe { observations: Vec<Observation>, y: Value },
    /// The action of a step as a one-hot row `[A]`.
    Act { step: usize, y: Value },
    /// A matrix with bias, and ReLU where it `rectifies`.
    Linear { matrix: usize, x: Value, y: Value, rectifies: bool },
    /// The function behind batch norms, of each number.
    Apply { x: Value, y: Value },
    /// A matrix and layer norm.
    Dense(Dense),
    /// A convolution, whose output z a batch norm reads; the gradient of the norm's output is that of `n`.
    Convolve { convolution: usize, norm: usize, x: Value, z: Value, n: Value },
    /// A convolution without a norm.
    Product { convolution: usize, x: Value, y: Value },
    /// A norm of single positions.
    Normalise(Normalised),
    /// The sums of values that attention gives to queries, keys and values.
    Attend { attention: usize, qkv: Value, y: Value },
    /// The sum of two values.
    Add { x: Value, beside: Value, y: Value },
    /// A batch norm and the operation behind it.
    Activate(Activated),
    /// The means, the scaled means and the maxima of channels over the cells.
    Pool { x: Value, y: Value },
    /// `(x − min) / (max − min + ε)` over the numbers of a position.
    Rescale { x: Value, y: Value },
    /// The channels of `state` and those of `beside` in each cell.
    Join(Join),
    /// Numbers that are 0.
    Zero { y: Value },
    /// Values less their mean over the batch.
    Centre { centre: usize, x: Value, y: Value },
    /// The one-hot row of the greatest number, whose gradient is passed straight through.
    Argmax { encoding: Value, code: Value },
    /// A step of an LSTM from the sums of its gates and the cell before.
    Remember { gates: Value, before: Option<Value>, cell: Value, output: Value },
    /// A loss, whose gradient the backward pass begins with.
    Loss(Loss),
}

/// A dense layer.
#[derive(Debug)]
pub(super) struct Dense {
    pub(super) layer: usize,
    pub(super) x: Value,
    pub(super) z: Value,
    /// Mean and inverse deviation of z.
    pub(super) moments: Value,
    pub(super) y: Value,
    /// Added before ReLU.
    pub(super) skip: Option<Value>,
    pub(super) rectifies: bool,
    /// The output to which y is added.
    pub(super) besides: Option<Value>,
}

/// A norm of single positions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Normalised {
    pub(super) norm: usize,
    pub(super) x: Value,
    /// Mean and inverse deviation of each cell or group.
    pub(super) moments: Value,
    pub(super) y: Value,
    /// The value whose gradient is that of y: y itself, unless an activation behind it changes its own.
    pub(super) n: Value,
}

/// The channels of two values in each of some cells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Join {
    /// `[cells, C]`.
    pub(super) state: Value,
    /// `[D, cells]`.
    pub(super) beside: Value,
    pub(super) cells: usize,
    /// The share of the gradient that reaches `state`.
    pub(super) share: f32,
    /// `[cells, C + D]`.
    pub(super) x: Value,
}

/// A batch norm, and what follows it up to the next convolution.
#[derive(Debug)]
pub(super) struct Activated {
    pub(super) activation: usize,
    pub(super) norm: usize,
    pub(super) z: Value,
    /// The value whose gradient is that of the norm's output: y, unless the activation changes it.
    pub(super) n: Value,
    pub(super) y: Value,
    pub(super) skip: Option<Value>,
    /// The output to which y is added.
    pub(super) besides: Option<Value>,
    /// Those with numbers.
    pub(super) kept: Kept<Option<Value>>,
}

/// A batch norm over the outputs of some uses of its convolution.
#[derive(Debug)]
pub(super) struct Norm {
    pub(super) convolution: usize,
    /// The phase in which the last use is convolved; `None` behind a norm of single positions, which leaves the batch
    /// norm nothing to do.
    pub(super) phase: Option<usize>,
}

/// An observation of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Observation {
    /// That of the position.
    Root,
    /// That after the action of a step, counted from 0.
    After(usize),
}

/// A loss and what it reads. Steps are counted from 0; the states of step k are those before its action.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Loss {
    /// Of the policy of a state.
    Policy { step: usize, logits: Value },
    /// Of the value of a state.
    Value { step: usize, logits: Value },
    /// Of the reward, or the value prefix, of the action of a step.
    Reward { step: usize, logits: Value },
    /// Of the value of the afterstate of the action of a step.
    Afterstate { step: usize, logits: Value },
    /// Of the code of chance after the action of a step.
    Chance { step: usize, logits: Value, encoding: Value },
    /// Of the state after the action of a step.
    Consistency { step: usize, predicted: Value, observed: Value },
}

impl Loss {
    /// The values whose gradient it begins.
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
    /// The values that it computes.
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
            Self::Zero { y } => vec![*y],
            Self::Argmax { code, .. } => vec![*code],
            Self::Remember { cell, output, .. } => vec![*cell, *output],
            Self::Loss(_) => Vec::new(),
        }
    }

    /// The values that it reads and adds to the gradients of.
    pub(super) fn inputs(&self) -> Vec<Value> {
        match self {
            Self::Observe { .. } | Self::Act { .. } | Self::Zero { .. } => Vec::new(),
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
            Self::Remember { gates, before, .. } => std::iter::once(*gates).chain(*before).collect(),
            Self::Loss(loss) => loss.inputs(),
        }
    }

    /// The values that its forward pass reads.
    pub(super) fn read_forward(&self) -> Vec<Value> {
        let skip = match self {
            Self::Dense(Dense { skip, .. }) | Self::Activate(Activated { skip, .. }) => *skip,
            _ => None,
        };
        self.inputs().into_iter().chain(skip).collect()
    }

    /// The values that its backward pass, or the gradient of its weights, may read.
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

    /// The values whose gradients lead to its own.
    pub(super) fn results(&self) -> Vec<Value> {
        match self {
            Self::Dense(dense) => vec![dense.y],
            Self::Convolve { n, .. } | Self::Normalise(Normalised { n, .. }) => vec![*n],
            Self::Activate(activated) => vec![activated.y],
            _ => self.outputs(),
        }
    }

    /// Values whose gradients it writes that are not inputs: replaced by those before ReLU, or of its intermediate
    /// ones.
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

    /// Values that it only reads in the backward pass, apart from those above.
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

    /// The backward pass of the mean over a batch needs the gradients of all positions, so it is a phase later.
    pub(super) fn waits_for_the_batch(&self) -> bool {
        matches!(self, Self::Centre { .. })
    }
}

/// What an activation computes in the forward pass.
pub(super) fn forward(kept: &Kept<Option<Value>>) -> impl Iterator<Item = Value> + use<> {
    [kept.squeezed, kept.hidden, kept.terms].into_iter().flatten()
}

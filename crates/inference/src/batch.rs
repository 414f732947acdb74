use game::{Action, ObservationShape};

use crate::Error;

/// A batch of positions to evaluate: observations `[B, C, H, W]`, and the legal actions of each position.
///
/// A batch is reused: [`clear`](Self::clear) keeps the allocated memory.
#[derive(Debug, Clone)]
pub struct Batch {
    shape: ObservationShape,
    observations: Vec<f32>,
    legal: Vec<Action>,
    /// Position `i` owns `legal[ends[i - 1]..ends[i]]`.
    ends: Vec<u32>,
}

impl Batch {
    /// Creates an empty batch for observations of `shape`.
    #[must_use]
    pub fn new(shape: ObservationShape) -> Self {
        Self { shape, observations: Vec::new(), legal: Vec::new(), ends: Vec::new() }
    }

    /// Adds a position: the legal actions, ascending, and a function that writes the observation `[C, H, W]` into a
    /// zeroed slice.
    pub fn push(&mut self, legal: &[Action], observe: impl FnOnce(&mut [f32])) {
        let start = self.observations.len();
        self.observations.resize(start + self.shape.len(), 0.0);
        observe(&mut self.observations[start..]);
        self.legal.extend_from_slice(legal);
        self.ends.push(u32::try_from(self.legal.len()).expect("a batch holds fewer than 2^32 legal actions"));
    }

    /// Adds the given positions of another batch with observations of the same shape.
    pub fn extend_from(&mut self, other: &Self, positions: impl IntoIterator<Item = usize>) {
        for i in positions {
            self.push(other.legal(i), |planes| planes.copy_from_slice(other.observation(i)));
        }
    }

    /// Empties the batch and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.observations.clear();
        self.legal.clear();
        self.ends.clear();
    }

    /// Returns B, the number of positions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if the batch holds no positions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the shape of each observation.
    #[must_use]
    pub fn shape(&self) -> ObservationShape {
        self.shape
    }

    /// Checks the batch for an evaluator of observations of `shape` with `actions` actions and at most `max_batch`
    /// positions.
    ///
    /// # Errors
    /// [`Error::Shape`] names the mismatch.
    pub fn check(&self, shape: ObservationShape, actions: usize, max_batch: usize) -> Result<(), Error> {
        let refuse = |expected, got| Err(Error::Shape { expected, got });
        if self.shape != shape {
            let of = |shape: ObservationShape| {
                format!("observations of [{}, {}, {}]", shape.planes, shape.height, shape.width)
            };
            return refuse(of(shape), of(self.shape));
        }
        if self.len() > max_batch {
            return refuse(format!("at most {max_batch} positions"), format!("{} positions", self.len()));
        }
        match self.legal.iter().find(|action| action.index() >= actions) {
            Some(action) => refuse(format!("actions below {actions}"), format!("action {}", action.index())),
            None => Ok(()),
        }
    }

    /// Returns all observations, `[B, C, H, W]`.
    #[must_use]
    pub fn observations(&self) -> &[f32] {
        &self.observations
    }

    /// Returns the observation of position `i`, `[C, H, W]`.
    #[must_use]
    pub fn observation(&self, i: usize) -> &[f32] {
        &self.observations[i * self.shape.len()..][..self.shape.len()]
    }

    /// Returns the legal actions of position `i`, ascending.
    #[must_use]
    pub fn legal(&self, i: usize) -> &[Action] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.legal[start..self.ends[i] as usize]
    }
}

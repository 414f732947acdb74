use crate::{Action, ObservationShape};

/// A symmetry of a game as permutations, so that the same tables transform tensors and positions.
///
/// For planes and cells, element `i` of the image is element `map[i]` of the original. Action `a` in the original
/// becomes action `actions[a]` of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symmetry {
    /// Source plane of each image plane, `[C]`.
    pub planes: Vec<u16>,
    /// Source cell of each image cell, `[H · W]`.
    pub cells: Vec<u16>,
    /// Image of each action, `[A]`.
    pub actions: Vec<u16>,
}

impl Symmetry {
    /// Returns the identity for a shape and a number of actions.
    ///
    /// # Panics
    /// If a dimension exceeds 65,535.
    #[must_use]
    pub fn identity(shape: ObservationShape, actions: usize) -> Self {
        let upto = |n: usize| (0..u16::try_from(n).expect("board dimensions fit 16 bits")).collect();
        Self { planes: upto(shape.planes), cells: upto(shape.height * shape.width), actions: upto(actions) }
    }

    /// Returns the image of an action.
    #[must_use]
    pub fn action(&self, action: Action) -> Action {
        Action(self.actions[action.index()])
    }

    /// Writes the image of observation `from` `[C, H, W]` into `to`.
    pub fn observation(&self, from: &[f32], to: &mut [f32]) {
        let cells = self.cells.len();
        for (plane, &source) in to.chunks_exact_mut(cells).zip(&self.planes) {
            let source = &from[source as usize * cells..][..cells];
            for (value, &cell) in plane.iter_mut().zip(&self.cells) {
                *value = source[cell as usize];
            }
        }
    }
}

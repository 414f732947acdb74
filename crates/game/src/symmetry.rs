use crate::{Action, ObservationShape};

/// A symmetry of a game, as permutations: data, so that tensors and positions are transformed by the same tables.
///
/// Element `i` of the image comes from element `map[i]` of the original, for planes and cells; an action `a` of the
/// original is the action `actions[a]` of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symmetry {
    /// Where each plane of the image comes from, `[C]`.
    pub planes: Vec<u16>,
    /// Where each cell of the image comes from, `[H · W]`.
    pub cells: Vec<u16>,
    /// What each action becomes, `[A]`.
    pub actions: Vec<u16>,
}

impl Symmetry {
    /// The symmetry that changes nothing.
    ///
    /// # Panics
    /// If a dimension exceeds 65,535.
    #[must_use]
    pub fn identity(shape: ObservationShape, actions: usize) -> Self {
        let upto = |n: usize| (0..u16::try_from(n).expect("board dimensions fit 16 bits")).collect();
        Self { planes: upto(shape.planes), cells: upto(shape.height * shape.width), actions: upto(actions) }
    }

    /// The image of an action.
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

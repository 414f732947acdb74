use game::{Action, ObservationShape, Symmetry};

/// The coordinates of a cell: row from the top, column from the left, both from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// Builds the symmetry that maps each cell by `image_of_cell` and each action by `image_of_action`; planes keep their
/// order.
pub(crate) fn symmetry(
    shape: ObservationShape,
    actions: usize,
    image_of_cell: impl Fn(Cell) -> Cell,
    image_of_action: impl Fn(Action) -> Action,
) -> Symmetry {
    let mut symmetry = Symmetry::identity(shape, actions);
    for row in 0..shape.height {
        for column in 0..shape.width {
            let image = image_of_cell(Cell { row, column });
            symmetry.cells[image.row * shape.width + image.column] = narrow(row * shape.width + column);
        }
    }
    for (action, image) in symmetry.actions.iter_mut().enumerate() {
        *image = image_of_action(Action(narrow(action))).0;
    }
    symmetry
}

/// Converts an index of a cell or an action to 16 bits.
pub(crate) fn narrow(index: usize) -> u16 {
    u16::try_from(index).expect("boards have fewer than 65,536 cells")
}

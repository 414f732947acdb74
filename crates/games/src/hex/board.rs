use std::fmt::Write as _;

use game::Player;

use crate::cells::{CELLS_MAX, Cells};
use crate::grid::{column_letter, narrow};

/// Returns true if the group of the stone on `cell` connects both edges of `player`.
///
/// Floods from the newest stone, the only stone that can complete a connection.
pub(super) fn connects(stones: &Cells, size: usize, player: Player, cell: usize) -> bool {
    let mut unseen = *stones;
    unseen.remove(cell);
    let mut to_visit = [0_u16; CELLS_MAX];
    to_visit[0] = narrow(cell);
    let mut waiting = 1;
    let mut reached = [false; 2];
    while waiting > 0 {
        waiting -= 1;
        let cell = to_visit[waiting] as usize;
        let distance = match player {
            Player::First => cell / size,
            Player::Second => cell % size,
        };
        reached[0] |= distance == 0;
        reached[1] |= distance == size - 1;
        if reached == [true; 2] {
            return true;
        }
        for neighbour in neighbours(cell, size) {
            if unseen.contains(neighbour) {
                unseen.remove(neighbour);
                to_visit[waiting] = narrow(neighbour);
                waiting += 1;
            }
        }
    }
    false
}

/// Iterates over the two to six cells that share an edge with `cell`.
fn neighbours(cell: usize, size: usize) -> impl Iterator<Item = usize> {
    let (row, column) = (cell / size, cell % size);
    let steps = [
        (row > 0).then(|| cell - size),
        (row > 0 && column + 1 < size).then(|| cell + 1 - size),
        (column > 0).then(|| cell - 1),
        (column + 1 < size).then(|| cell + 1),
        (row + 1 < size && column > 0).then(|| cell + size - 1),
        (row + 1 < size).then(|| cell + size),
    ];
    steps.into_iter().flatten()
}

/// Renders the rhombus; each row is half a cell further to the right than the row above.
pub(super) fn render(size: usize, stone: impl Fn(usize) -> char) -> String {
    let mut text = String::from("  ");
    for column in 0..size {
        write!(text, " {}", column_letter(column)).expect("a string takes all text");
    }
    for row in 0..size {
        write!(text, "\n{:indent$}{:>2} ", "", row + 1, indent = row).expect("a string takes all text");
        for column in 0..size {
            write!(text, " {}", stone(row * size + column)).expect("a string takes all text");
        }
    }
    text
}

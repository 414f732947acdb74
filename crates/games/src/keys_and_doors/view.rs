//! The view of the agent: 7 × 7 cells ahead, as computed by Minigrid (`gen_obs_grid` and `process_vis`).

use super::{Cell, Door, Object, Position};

/// Number of cells along a side of the view.
pub(super) const SIDE: u8 = 7;
const LAST: usize = SIDE as usize - 1;
const MIDDLE: usize = SIDE as usize / 2;
const CELLS: usize = SIDE as usize * SIDE as usize;

/// A value per cell of the view, row by row.
type Grid<T> = [[T; SIDE as usize]; SIDE as usize];

/// Writes the observation `[3, 7, 7]`.
pub(super) fn observe(position: &Position, planes: &mut [f32]) {
    let mut objects = objects(position);
    let visible = visible(&objects);
    // The agent's own cell shows the carried object, and nothing else.
    objects[LAST][MIDDLE] = if position.key.is_none() { Object::Key } else { Object::Empty };
    for (index, (object, visible)) in objects.iter().flatten().zip(visible.iter().flatten()).enumerate() {
        let code = if *visible { code(*object) } else { [0.0; 3] };
        for (plane, value) in code.into_iter().enumerate() {
            planes[plane * CELLS + index] = value;
        }
    }
}

/// Returns the Minigrid indices of an object, the colour and the state, each divided by the maximum.
fn code(object: Object) -> [f32; 3] {
    // Indices 1, 4 and 5 of 5.
    const GREEN: f32 = 0.2;
    const YELLOW: f32 = 0.8;
    const GREY: f32 = 1.0;
    match object {
        Object::Empty => [1.0 / 10.0, 0.0, 0.0],
        Object::Wall => [2.0 / 10.0, GREY, 0.0],
        Object::Door(door) => [4.0 / 10.0, YELLOW, f32::from(door as u8) / 2.0],
        Object::Key => [5.0 / 10.0, YELLOW, 0.0],
        Object::Goal => [8.0 / 10.0, GREEN, 0.0],
    }
}

/// Returns the cells ahead of the agent, which is in the middle of the last row and looks up.
fn objects(position: &Position) -> Grid<Object> {
    let (forward, right) = (position.facing.forward(), position.facing.turned(1).forward());
    let at = |row: usize, column: usize| {
        let [ahead, aside] = [LAST as i8 - row as i8, column as i8 - MIDDLE as i8];
        // Coordinates below 0 wrap to large values, which are outside the grid as well.
        let shift = |start: u8, forward: i8, right: i8| start.wrapping_add_signed(ahead * forward + aside * right);
        position.object_at(Cell {
            column: shift(position.agent.column, forward.0, right.0),
            row: shift(position.agent.row, forward.1, right.1),
        })
    };
    std::array::from_fn(|row| std::array::from_fn(|column| at(row, column)))
}

/// Returns the cells that the agent sees. From the agent's cell, sight spreads along each row to both sides and into
/// the row ahead. Walls and doors that are not open are visible and block it.
fn visible(objects: &Grid<Object>) -> Grid<bool> {
    let is_opaque = |object| matches!(object, Object::Wall | Object::Door(Door::Closed | Door::Locked));
    let mut visible = [[false; SIDE as usize]; SIDE as usize];
    visible[LAST][MIDDLE] = true;
    for row in (0..=LAST).rev() {
        let mut spread = |column: usize, next: usize| {
            if !visible[row][column] || is_opaque(objects[row][column]) {
                return;
            }
            visible[row][next] = true;
            if let Some(ahead) = row.checked_sub(1) {
                visible[ahead][column] = true;
                visible[ahead][next] = true;
            }
        };
        (0..LAST).for_each(|column| spread(column, column + 1));
        (1..=LAST).rev().for_each(|column| spread(column, column - 1));
    }
    visible
}

//! Positions of board games as bits, from the first two observation planes.

use game::Game;

/// Returns the cells of the player to move and the opponent, row by row. The first two planes of the game must be
/// these cells, and the board has at most 64.
pub(crate) fn stones<G: Game>(game: &G, position: &G::Position) -> [u64; 2] {
    let shape = game.spec().observation;
    let cells = shape.height * shape.width;
    assert!(cells <= 64, "{} has {cells} cells, more than 64", game.spec().name);
    let mut planes = vec![0.0; shape.len()];
    game.observe(position, &mut planes);
    let bits = |plane: &[f32]| (0..cells).fold(0, |bits, cell| bits | u64::from(plane[cell] != 0.0) << cell);
    [bits(&planes[..cells]), bits(&planes[cells..])]
}

/// Returns the number of stones of both players.
pub(crate) fn count<G: Game>(game: &G, position: &G::Position) -> usize {
    stones(game, position).iter().map(|stones| stones.count_ones() as usize).sum()
}

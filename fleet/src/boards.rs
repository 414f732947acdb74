//! The processes of the boards of a run beside that of `run.game`: replay servers and actors of their own.

use std::net::SocketAddr;

/// A board beside that of `run.game` in the plan of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedBoard {
    /// The game with its board: `go-7`.
    pub game: String,
    /// Its self-play processes; at least one.
    pub actors: usize,
    /// The address of each of its replay servers in the previous session; at least one server.
    pub replay: Vec<Option<SocketAddr>>,
}

/// Divides actors over boards: each has as many, and the first ones have one of the remainder.
pub(crate) fn divide(actors: usize, boards: usize) -> impl Iterator<Item = usize> {
    (0..boards).map(move |board| actors / boards + usize::from(board < actors % boards))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_are_divided_evenly_and_the_remainder_goes_to_the_first_boards() {
        for (actors, boards, expected) in [(4, 1, &[4][..]), (4, 2, &[2, 2]), (5, 3, &[2, 2, 1]), (3, 3, &[1, 1, 1])] {
            let divided: Vec<usize> = divide(actors, boards).collect();
            assert_eq!(divided, expected);
            assert_eq!(divided.iter().sum::<usize>(), actors);
        }
    }
}

//! Further boards of a run, in addition to `run.game`: each has separate replay servers and actors.

use std::iter;
use std::net::SocketAddr;

/// A further board, not the board of `run.game`, in the plan of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedBoard {
    /// Name of the game on this board: `go-7`.
    pub game: String,
    /// Number of self-play processes on the board; at least one.
    pub actors: usize,
    /// Address of each replay server in the previous session; `None` for a new server. Has at least one entry.
    pub replay: Vec<Option<SocketAddr>>,
}

/// Maximum number of actors that a session may get after the start. Each takes memory, and more than one per core does
/// not play faster.
pub const ACTORS_MAX: usize = 64;

/// Returns the name of an actor; `None` is the board of `run.game`. Each board counts actors from 0.
pub(crate) fn actor_name(board: Option<&str>, number: usize) -> String {
    board.map_or_else(|| format!("actor-{number}"), |board| format!("actor-{board}-{number}"))
}

/// Returns all actor names, first for the board of `run.game`, then for each of `boards`.
pub(crate) fn actor_names(boards: &[String], actors: usize) -> impl Iterator<Item = String> {
    let all = iter::once(None).chain(boards.iter().map(|board| Some(board.as_str())));
    all.zip(divide(actors, 1 + boards.len()))
        .flat_map(|(board, count)| (0..count).map(move |number| actor_name(board, number)))
}

/// Divides actors evenly over boards; the remainder goes to the first boards.
pub(crate) fn divide(actors: usize, boards: usize) -> impl Iterator<Item = usize> {
    (0..boards).map(move |board| actors / boards + usize::from(board < actors % boards))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_actors_of_each_board_are_counted() {
        let names: Vec<String> = actor_names(&["go-7".to_owned()], 3).collect();
        assert_eq!(names, ["actor-0", "actor-1", "actor-go-7-0"]);
    }

    #[test]
    fn actors_are_divided_evenly_and_the_remainder_goes_to_the_first_boards() {
        for (actors, boards, expected) in [(4, 1, &[4][..]), (4, 2, &[2, 2]), (5, 3, &[2, 2, 1]), (3, 3, &[1, 1, 1])] {
            let divided: Vec<usize> = divide(actors, boards).collect();
            assert_eq!(divided, expected);
            assert_eq!(divided.iter().sum::<usize>(), actors);
        }
    }
}

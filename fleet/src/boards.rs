//! The processes of the boards of a run beside that of `run.game`: replay servers and actors of their own.

use std::iter;
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

/// Returns the name of an actor: of the board of `run.game` if `board` is `None`. Actors of each board count from 0.
pub(crate) fn actor_name(board: Option<&str>, number: usize) -> String {
    board.map_or_else(|| format!("actor-{number}"), |board| format!("actor-{board}-{number}"))
}

/// Returns the names of actors, first of the board of `run.game`, then of each of `boards`.
pub(crate) fn actor_names(boards: &[String], actors: usize) -> impl Iterator<Item = String> {
    let all = iter::once(None).chain(boards.iter().map(|board| Some(board.as_str())));
    all.zip(divide(actors, 1 + boards.len()))
        .flat_map(|(board, count)| (0..count).map(move |number| actor_name(board, number)))
}

/// Divides actors over boards: each has as many, and the first ones have one of the remainder.
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

//! Matches: many concurrent games between two contestants, each opening from both sides. Start with [`play`].

use std::collections::HashSet;
use std::ops::ControlFlow;

use game::{Game, Outcome, Player};
use rand::{Rng, RngExt};

use crate::contestant::Contestant;
use crate::ledger::Tally;

/// The settings of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The number of openings, each of which is played in two games, with sides exchanged.
    pub openings: usize,
    /// The maximum number of random plies of an opening. Without them, two deterministic players would repeat one game.
    pub opening_plies_max: u16,
}

/// The number of consecutive draws without a new opening after which openings become longer.
const REPEATS_MAX: usize = 64;

struct Board<P> {
    position: P,
    /// The index of its opening.
    opening: usize,
    /// The index of the contestant that moves first.
    first: usize,
}

/// The failure of an evaluator during a match.
#[derive(Debug, thiserror::Error)]
#[error("contestant {contestant} cannot choose")]
pub struct Error {
    /// The index of the contestant: 0 or 1.
    pub contestant: usize,
    /// The error of the evaluator.
    pub source: inference::Error,
}

/// Returns the next `settings.openings` openings of the sequence that `rng` determines, after the first `skipped`.
///
/// No two openings of a sequence are equal up to the symmetries of the game, because a repeated game between
/// deterministic players adds no evidence. If there are too few openings of that length, later ones have more plies; a
/// game with too few openings of any length repeats them.
pub fn openings<G: Game>(game: &G, settings: Settings, skipped: usize, rng: &mut impl Rng) -> Vec<G::Position> {
    let (mut openings, mut seen) = (Vec::new(), HashSet::new());
    let mut plies_max = settings.opening_plies_max;
    let mut repeats = 0;
    while openings.len() < skipped + settings.openings {
        let position = opening(game, plies_max, rng);
        let images = (0..game.symmetries().len()).map(|symmetry| game.hash(&game.image(&position, symmetry)));
        if seen.insert(images.min()) {
            openings.push(position);
            repeats = 0;
        } else if repeats < REPEATS_MAX {
            repeats += 1;
        } else {
            repeats = 0;
            if usize::from(plies_max) < game.spec().max_plies {
                plies_max += 1;
            } else {
                tracing::warn!(openings = openings.len(), "the game has no more openings: they are repeated");
                seen.clear();
            }
        }
    }
    openings.split_off(skipped)
}

/// Plays each opening twice between two contestants, with sides exchanged; all games advance together. The tally is
/// from the point of view of contestant 0.
///
/// `pause` is called after every round of moves: it may sleep, or stop the match, which then has no tally.
///
/// # Errors
/// If an evaluator fails; [`Error`] names the contestant.
pub fn play<G: Game>(
    game: &G,
    [a, b]: [&mut dyn Contestant<G>; 2],
    openings: &[G::Position],
    pause: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Option<Tally>, Error> {
    let board = |(opening, position): (usize, &G::Position)| {
        [0, 1].map(|first| Board { position: position.clone(), opening, first })
    };
    let mut boards: Vec<Board<G::Position>> = openings.iter().enumerate().flat_map(board).collect();
    let mut half_points = vec![0; openings.len()];
    while !boards.is_empty() {
        // The boards are divided by the player to move before either contestant moves: a board advances by one ply per
        // round.
        let (of_a, of_b): (Vec<usize>, Vec<usize>) =
            (0..boards.len()).partition(|&index| boards[index].contestant_to_move(game) == 0);
        advance(game, a, &mut boards, &of_a).map_err(|source| Error { contestant: 0, source })?;
        advance(game, b, &mut boards, &of_b).map_err(|source| Error { contestant: 1, source })?;
        boards.retain(|board| match game.outcome(&board.position) {
            Some(outcome) => {
                half_points[board.opening] += board.half_points(outcome);
                false
            }
            None => true,
        });
        if pause().is_break() {
            return Ok(None);
        }
    }
    let mut tally = Tally::default();
    half_points.into_iter().for_each(|half_points| tally.count(half_points));
    Ok(Some(tally))
}

/// Plays one ply on each of the boards at `indices`.
fn advance<G: Game>(
    game: &G,
    contestant: &mut dyn Contestant<G>,
    boards: &mut [Board<G::Position>],
    indices: &[usize],
) -> Result<(), inference::Error> {
    if indices.is_empty() {
        return Ok(());
    }
    let positions: Vec<G::Position> = indices.iter().map(|&index| boards[index].position.clone()).collect();
    for (&index, action) in indices.iter().zip(contestant.choose(game, &positions)?) {
        game.play(&mut boards[index].position, action);
    }
    Ok(())
}

impl<P> Board<P> {
    fn contestant_to_move<G: Game<Position = P>>(&self, game: &G) -> usize {
        match game.to_move(&self.position) {
            Player::First => self.first,
            Player::Second => 1 - self.first,
        }
    }

    /// Returns the points of contestant 0, in half points.
    fn half_points(&self, outcome: Outcome) -> usize {
        let side = if self.first == 0 { Player::First } else { Player::Second };
        match outcome {
            Outcome::Win(winner) => 2 * usize::from(winner == side),
            Outcome::Draw | Outcome::Finished | Outcome::Truncated => 1,
        }
    }
}

/// Returns a position after at most `plies_max` random plies, never a final one.
fn opening<G: Game>(game: &G, plies_max: u16, rng: &mut impl Rng) -> G::Position {
    let mut legal = Vec::new();
    let mut position = game.start();
    for _ in 0..rng.random_range(0..=plies_max) {
        game.legal_actions(&position, &mut legal);
        let mut next = position.clone();
        game.play(&mut next, legal[rng.random_range(0..legal.len())]);
        if game.outcome(&next).is_some() {
            break;
        }
        position = next;
    }
    position
}

#[cfg(test)]
mod tests {
    //! Tests matches between contestants that need no network.

    use std::collections::HashSet;
    use std::ops::ControlFlow;

    use game::{Action, Game};
    use games::{ConnectFour, TicTacToe};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::{Settings, openings, play};
    use crate::contestant::{Contestant, PlayoutMover, RandomMover};
    use crate::ledger::Tally;

    fn rng(seed: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(seed)
    }

    fn random(seed: u64) -> RandomMover {
        RandomMover { rng: rng(seed) }
    }

    fn settings(openings: usize, opening_plies_max: u16) -> Settings {
        Settings { openings, opening_plies_max }
    }

    /// A contestant that plays the lowest legal action.
    struct Lowest;

    impl<G: Game> Contestant<G> for Lowest {
        fn choose(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Action>, inference::Error> {
            let mut legal = Vec::new();
            let lowest = |position| {
                game.legal_actions(position, &mut legal);
                legal[0]
            };
            Ok(positions.iter().map(lowest).collect())
        }
    }

    /// A contestant that fails.
    struct Failing;

    impl<G: Game> Contestant<G> for Failing {
        fn choose(&mut self, _: &G, _: &[G::Position]) -> Result<Vec<Action>, inference::Error> {
            Err(inference::Error::NotFinite { weights_version: 1 })
        }
    }

    fn complete<G: Game>(game: &G, contestants: [&mut dyn Contestant<G>; 2], settings: Settings) -> Tally {
        let openings = openings(game, settings, 0, &mut rng(1));
        play(game, contestants, &openings, &mut || ControlFlow::Continue(())).unwrap().unwrap()
    }

    /// A contestant that counts its moves at the start of a game.
    struct Beginner {
        began: usize,
    }

    impl<G: Game> Contestant<G> for Beginner {
        fn choose(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Action>, inference::Error> {
            let start = game.hash(&game.start());
            self.began += positions.iter().filter(|position| game.hash(position) == start).count();
            Lowest.choose(game, positions)
        }
    }

    #[test]
    fn each_contestant_begins_half_of_the_games() {
        let (mut a, mut b) = (Beginner { began: 0 }, Beginner { began: 0 });
        let tally = complete(&TicTacToe::new(), [&mut a, &mut b], settings(1, 0));
        assert_eq!((a.began, b.began, tally.games()), (1, 1, 2));
    }

    /// With both players on the lowest free cell, the first player completes a diagonal: cells 2, 4 and 6.
    #[test]
    fn a_known_game_is_won_by_the_first_player_so_that_its_pair_is_shared() {
        let tally = complete(&TicTacToe::new(), [&mut Lowest, &mut Lowest], settings(1, 0));
        assert_eq!(tally, Tally { pairs: [0, 0, 1, 0, 0] });
    }

    /// Returns a key that is equal for a position and its images.
    fn canonical<G: Game>(game: &G, position: &G::Position) -> u64 {
        (0..game.symmetries().len()).map(|symmetry| game.hash(&game.image(position, symmetry))).min().unwrap()
    }

    #[test]
    fn no_two_openings_of_a_version_are_the_same_up_to_symmetry() {
        let game = ConnectFour::new();
        for seed in 0..20 {
            // Plays three matches, as the worker does.
            let openings = (0..3).flat_map(|of| openings(&game, settings(8, 4), 8 * of, &mut rng(seed)));
            let distinct: HashSet<u64> = openings.map(|position| canonical(&game, &position)).collect();
            assert_eq!(distinct.len(), 24);
        }
    }

    #[test]
    fn openings_become_longer_where_there_are_too_few_and_repeat_where_the_game_has_no_more() {
        let game = TicTacToe::new();
        let distinct = |count: usize, plies: u16| {
            let openings = openings(&game, settings(count, plies), 0, &mut rng(1));
            assert_eq!(openings.len(), count);
            openings.iter().map(|position| canonical(&game, position)).collect::<HashSet<u64>>().len()
        };
        // These are the empty board, a corner, an edge and the centre.
        assert_eq!(distinct(4, 1), 4);
        assert_eq!(distinct(50, 0), 50);
        assert!(distinct(1000, 9) < 765, "tic-tac-toe has 765 positions up to symmetry");
    }

    /// A search of 200 simulations scores above 90 % against random moves in Connect Four: 40 games, measured at 100 %.
    #[test]
    fn playouts_beat_random_moves() {
        let mut strong = PlayoutMover::new(200, rng(4));
        let tally = complete(&ConnectFour::new(), [&mut strong, &mut random(5)], settings(20, 4));
        assert!(tally.points() >= 36.0, "{tally:?}");
    }

    #[test]
    fn a_seed_fixes_the_match() {
        let once = || complete(&ConnectFour::new(), [&mut random(2), &mut random(3)], settings(10, 4));
        assert_eq!(once(), once());
    }

    #[test]
    fn a_match_that_is_stopped_has_no_tally() {
        let mut rounds = 0;
        let mut pause = || {
            rounds += 1;
            if rounds < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let game = ConnectFour::new();
        let openings = openings(&game, settings(4, 1), 0, &mut rng(1));
        let tally = play(&game, [&mut random(2), &mut random(3)], &openings, &mut pause).unwrap();
        assert_eq!((tally, rounds), (None, 3));
    }

    #[test]
    fn a_failed_match_names_the_contestant_that_cannot_choose() {
        let fails = |contestants: [&mut dyn Contestant<TicTacToe>; 2]| {
            let go_on = &mut || ControlFlow::Continue(());
            let game = TicTacToe::new();
            play(&game, contestants, &[game.start()], go_on).unwrap_err().contestant
        };
        assert_eq!((fails([&mut Failing, &mut Lowest]), fails([&mut Lowest, &mut Failing])), (0, 1));
    }
}

//! Matches: many games at once between two contestants, each opening played from both sides. Start with [`play`].

use std::ops::ControlFlow;

use game::{Action, Game, Outcome, Player};
use rand::{Rng, RngExt};

use crate::contestant::Contestant;

/// How a match is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Openings; each makes two games, with sides exchanged.
    pub openings: usize,
    /// An opening is this many random plies at most, and at least none: without them two deterministic players would play
    /// one game over and over.
    pub opening_plies_max: u16,
}

/// How the games of a match ended; each array is indexed by which contestant had the first player's side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Games that the first player won.
    pub first_won: [u64; 2],
    /// Games that nobody won.
    pub drawn: [u64; 2],
    /// Games that the second player won.
    pub second_won: [u64; 2],
}

struct Board<P> {
    position: P,
    /// Which contestant has the first player's side.
    first: usize,
}

/// An evaluator failed in the middle of a match.
#[derive(Debug, thiserror::Error)]
#[error("contestant {contestant} cannot choose")]
pub struct Error {
    /// Whose it is: 0 or 1.
    pub contestant: usize,
    /// Why it failed.
    pub source: inference::Error,
}

/// Plays a match between two contestants; all its games advance together.
///
/// `pause` is called after every round of moves: it may sleep, or break off; then there is no tally.
///
/// # Errors
/// If an evaluator fails; [`Error`] says whose.
pub fn play<G: Game>(
    game: &G,
    [a, b]: [&mut dyn Contestant<G>; 2],
    settings: Settings,
    rng: &mut impl Rng,
    pause: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Option<Tally>, Error> {
    let mut boards = Vec::with_capacity(2 * settings.openings);
    for _ in 0..settings.openings {
        let position = opening(game, settings.opening_plies_max, rng);
        boards.push(Board { position: position.clone(), first: 0 });
        boards.push(Board { position, first: 1 });
    }
    let mut tally = Tally::default();
    while !boards.is_empty() {
        // Who is to move is decided before either moves: a board advances by one ply per round.
        let (of_a, of_b): (Vec<usize>, Vec<usize>) =
            (0..boards.len()).partition(|&index| boards[index].contestant_to_move(game) == 0);
        advance(game, a, &mut boards, &of_a).map_err(|source| Error { contestant: 0, source })?;
        advance(game, b, &mut boards, &of_b).map_err(|source| Error { contestant: 1, source })?;
        boards.retain(|board| match game.outcome(&board.position) {
            Some(outcome) => {
                tally.count(board.first, outcome);
                false
            }
            None => true,
        });
        if pause().is_break() {
            return Ok(None);
        }
    }
    Ok(Some(tally))
}

/// One ply on each of the boards at `indices`.
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
    let mut actions: Vec<Action> = Vec::with_capacity(indices.len());
    contestant.choose(game, &positions, &mut actions)?;
    for (&index, &action) in indices.iter().zip(&actions) {
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
}

/// The position after a few random plies, never one that is over.
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

impl Tally {
    fn count(&mut self, first: usize, outcome: Outcome) {
        let counts = match outcome {
            Outcome::Win(Player::First) => &mut self.first_won,
            Outcome::Win(Player::Second) => &mut self.second_won,
            Outcome::Draw | Outcome::Finished => &mut self.drawn,
        };
        counts[first] += 1;
    }

    /// How many games were played.
    #[must_use]
    pub fn games(&self) -> u64 {
        [self.first_won, self.drawn, self.second_won].iter().flatten().sum()
    }

    /// Points of contestant 0: one for a win, half for a draw.
    #[must_use]
    pub fn points(&self) -> f64 {
        let won = self.first_won[0] + self.second_won[1];
        won as f64 + 0.5 * (self.drawn[0] + self.drawn[1]) as f64
    }
}

#[cfg(test)]
mod tests {
    //! Claims about matches, between contestants that need no network.

    use std::ops::ControlFlow;

    use game::{Action, Game};
    use games::{ConnectFour, TicTacToe};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::{Settings, Tally, play};
    use crate::contestant::{Contestant, PlayoutMover, RandomMover};

    fn rng(seed: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(seed)
    }

    fn random(seed: u64) -> RandomMover {
        RandomMover { rng: rng(seed) }
    }

    fn settings(openings: usize, opening_plies_max: u16) -> Settings {
        Settings { openings, opening_plies_max }
    }

    /// Always the lowest legal action.
    struct Lowest;

    impl<G: Game> Contestant<G> for Lowest {
        fn choose(
            &mut self,
            game: &G,
            positions: &[G::Position],
            actions: &mut Vec<Action>,
        ) -> Result<(), inference::Error> {
            let mut legal = Vec::new();
            actions.clear();
            for position in positions {
                game.legal_actions(position, &mut legal);
                actions.push(legal[0]);
            }
            Ok(())
        }
    }

    /// Has no answer.
    struct Failing;

    impl<G: Game> Contestant<G> for Failing {
        fn choose(&mut self, _: &G, _: &[G::Position], _: &mut Vec<Action>) -> Result<(), inference::Error> {
            Err(inference::Error::NotFinite { weights_version: 1 })
        }
    }

    fn complete<G: Game>(game: &G, contestants: [&mut dyn Contestant<G>; 2], settings: Settings) -> Tally {
        play(game, contestants, settings, &mut rng(1), &mut || ControlFlow::Continue(())).unwrap().unwrap()
    }

    #[test]
    fn each_contestant_begins_half_of_the_games() {
        let tally = complete(&TicTacToe::new(), [&mut random(2), &mut random(3)], settings(20, 2));
        let begun =
            |contestant: usize| tally.first_won[contestant] + tally.drawn[contestant] + tally.second_won[contestant];
        assert_eq!((begun(0), begun(1), tally.games()), (20, 20, 40));
    }

    /// Filling the lowest cell, the first player completes a diagonal: cells 2, 4 and 6.
    #[test]
    fn a_known_game_is_won_by_whoever_has_the_first_move() {
        let tally = complete(&TicTacToe::new(), [&mut Lowest, &mut Lowest], settings(3, 0));
        assert_eq!(tally, Tally { first_won: [3, 3], drawn: [0, 0], second_won: [0, 0] });
        assert!((tally.points() - 3.0).abs() < f64::EPSILON);
    }

    /// 200 simulations score above 90 % against random moves in Connect Four: 40 games, measured at 100 %.
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
    fn a_match_that_is_broken_off_has_no_tally() {
        let mut rounds = 0;
        let mut pause = || {
            rounds += 1;
            if rounds < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let game = ConnectFour::new();
        let tally = play(&game, [&mut random(2), &mut random(3)], settings(4, 0), &mut rng(1), &mut pause).unwrap();
        assert_eq!((tally, rounds), (None, 3));
    }

    #[test]
    fn a_match_that_cannot_go_on_names_the_contestant_that_cannot_choose() {
        let fails = |contestants: [&mut dyn Contestant<TicTacToe>; 2]| {
            let go_on = &mut || ControlFlow::Continue(());
            play(&TicTacToe::new(), contestants, settings(1, 0), &mut rng(1), go_on).unwrap_err().contestant
        };
        assert_eq!((fails([&mut Failing, &mut Lowest]), fails([&mut Lowest, &mut Failing])), (0, 1));
    }
}

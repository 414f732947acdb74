//! Matches: many concurrent games between two contestants, each opening from both sides. Start with [`play`].

use std::collections::HashSet;
use std::ops::ControlFlow;

use game::{Action, Game, Outcome, Player};
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

/// A position from which two games begin.
#[derive(Debug, Clone, PartialEq)]
pub struct Opening<P> {
    /// The actions from the start of the game to the position.
    pub actions: Vec<Action>,
    /// The position, never a final one.
    pub position: P,
}

/// A finished game.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlayedGame {
    /// All actions from the start of the game, those of the opening first.
    pub actions: Vec<Action>,
    /// The outcome.
    pub outcome: Outcome,
}

/// The two games of an opening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The number of plies of the opening.
    pub opening_plies: usize,
    /// The games: the first with contestant 0 as the first player, the second with sides exchanged.
    pub games: [PlayedGame; 2],
    /// Whether an earlier pair of the match has the same two games, move by move. Such a pair is no evidence.
    pub is_repeated: bool,
}

/// All games of a match so far.
#[derive(Debug, Clone, Default)]
pub struct Played {
    pairs: Vec<Pair>,
    /// The actions of the two games of each pair.
    seen: HashSet<[Vec<Action>; 2]>,
}

struct Board<P> {
    position: P,
    actions: Vec<Action>,
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
pub fn openings<G: Game>(
    game: &G,
    settings: Settings,
    skipped: usize,
    rng: &mut impl Rng,
) -> Vec<Opening<G::Position>> {
    let (mut openings, mut seen) = (Vec::new(), HashSet::new());
    let mut plies_max = settings.opening_plies_max;
    let mut repeats = 0;
    while openings.len() < skipped + settings.openings {
        let opening = opening(game, plies_max, rng);
        let images = (0..game.symmetries().len()).map(|symmetry| game.hash(&game.image(&opening.position, symmetry)));
        if seen.insert(images.min()) {
            openings.push(opening);
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

/// Plays each opening twice between two contestants, with sides exchanged, and adds the games to `played`. All games
/// advance together. Breaks if the match was stopped; the pairs whose games are both over are then added as well.
///
/// `pause` is called after every round of moves with the number of games that are still played: it may sleep, or stop
/// the match.
///
/// # Errors
/// If an evaluator fails; [`Error`] names the contestant. The pairs whose games are both over are added.
pub fn play<G: Game>(
    game: &G,
    contestants: [&mut dyn Contestant<G>; 2],
    openings: &[Opening<G::Position>],
    played: &mut Played,
    pause: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Error> {
    let mut games: Vec<[Option<PlayedGame>; 2]> = openings.iter().map(|_| [None, None]).collect();
    let flow = play_boards(game, contestants, openings, &mut games, pause);
    for (opening, games) in openings.iter().zip(games) {
        if let [Some(one), Some(other)] = games {
            played.add(opening.actions.len(), [one, other]);
        }
    }
    flow
}

/// Plays all games, and enters each that is over in `games`, by opening and the contestant that moved first.
fn play_boards<G: Game>(
    game: &G,
    [a, b]: [&mut dyn Contestant<G>; 2],
    openings: &[Opening<G::Position>],
    games: &mut [[Option<PlayedGame>; 2]],
    pause: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Error> {
    let board = |(index, opening): (usize, &Opening<G::Position>)| {
        let Opening { actions, position } = opening;
        [0, 1].map(|first| Board { position: position.clone(), actions: actions.clone(), opening: index, first })
    };
    let mut boards: Vec<Board<G::Position>> = openings.iter().enumerate().flat_map(board).collect();
    while !boards.is_empty() {
        // The boards are divided by the player to move before either contestant moves: a board advances by one ply per
        // round.
        let (of_a, of_b): (Vec<usize>, Vec<usize>) =
            (0..boards.len()).partition(|&index| boards[index].contestant_to_move(game) == 0);
        advance(game, a, &mut boards, &of_a).map_err(|source| Error { contestant: 0, source })?;
        advance(game, b, &mut boards, &of_b).map_err(|source| Error { contestant: 1, source })?;
        boards.retain_mut(|board| match game.outcome(&board.position) {
            Some(outcome) => {
                let actions = std::mem::take(&mut board.actions);
                games[board.opening][board.first] = Some(PlayedGame { actions, outcome });
                false
            }
            None => true,
        });
        if pause(boards.len()).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
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
        let board = &mut boards[index];
        game.play(&mut board.position, action);
        board.actions.push(action);
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

impl PlayedGame {
    /// Returns the half points of the first player: 0 for a loss, 1 for a draw, 2 for a win.
    #[must_use]
    pub fn half_points_of_first(&self) -> usize {
        match self.outcome {
            Outcome::Win(winner) => 2 * usize::from(winner == Player::First),
            Outcome::Draw | Outcome::Finished | Outcome::Truncated => 1,
        }
    }
}

impl Pair {
    /// Returns the half points of contestant 0 in both games, from 0 to 4.
    #[must_use]
    pub fn half_points(&self) -> usize {
        let [one, other] = &self.games;
        one.half_points_of_first() + 2 - other.half_points_of_first()
    }
}

impl Played {
    /// Adds the two games of an opening.
    fn add(&mut self, opening_plies: usize, games: [PlayedGame; 2]) {
        let is_repeated = !self.seen.insert(games.each_ref().map(|game| game.actions.clone()));
        self.pairs.push(Pair { opening_plies, games, is_repeated });
    }

    /// Returns the pairs of games in the order of their openings.
    #[must_use]
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Returns the results from the point of view of contestant 0, in which pairs with identical moves count once.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally_of(|pair| !pair.is_repeated)
    }

    /// Returns the results of all pairs, repeated ones too.
    #[must_use]
    pub fn tally_with_repetitions(&self) -> Tally {
        self.tally_of(|_| true)
    }

    /// Returns the number of games that repeat those of an earlier pair move by move.
    #[must_use]
    pub fn repeated_games(&self) -> usize {
        2 * self.pairs.iter().filter(|pair| pair.is_repeated).count()
    }

    fn tally_of(&self, counts: impl Fn(&Pair) -> bool) -> Tally {
        let mut tally = Tally::default();
        self.pairs.iter().filter(|pair| counts(pair)).for_each(|pair| tally.count(pair.half_points()));
        tally
    }
}

/// Returns an opening of at most `plies_max` random plies.
fn opening<G: Game>(game: &G, plies_max: u16, rng: &mut impl Rng) -> Opening<G::Position> {
    let mut legal = Vec::new();
    let (mut position, mut actions) = (game.start(), Vec::new());
    for _ in 0..rng.random_range(0..=plies_max) {
        game.legal_actions(&position, &mut legal);
        let action = legal[rng.random_range(0..legal.len())];
        let mut next = position.clone();
        game.play(&mut next, action);
        if game.outcome(&next).is_some() {
            break;
        }
        position = next;
        actions.push(action);
    }
    Opening { actions, position }
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

    use super::{Opening, Played, Settings, openings, play};
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

    fn start<G: Game>(game: &G) -> Opening<G::Position> {
        Opening { actions: Vec::new(), position: game.start() }
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
        played(game, contestants, &openings(game, settings, 0, &mut rng(1))).tally_with_repetitions()
    }

    fn played<G: Game>(game: &G, contestants: [&mut dyn Contestant<G>; 2], from: &[Opening<G::Position>]) -> Played {
        let mut played = Played::default();
        let _ = play(game, contestants, from, &mut played, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(played.pairs().len(), from.len());
        played
    }

    /// A contestant that counts its moves at the start of a game.
    struct Beginner(usize);

    impl<G: Game> Contestant<G> for Beginner {
        fn choose(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Action>, inference::Error> {
            let start = game.hash(&game.start());
            self.0 += positions.iter().filter(|position| game.hash(position) == start).count();
            Lowest.choose(game, positions)
        }
    }

    #[test]
    fn each_contestant_begins_half_of_the_games() {
        let (mut a, mut b) = (Beginner(0), Beginner(0));
        let tally = complete(&TicTacToe::new(), [&mut a, &mut b], settings(1, 0));
        assert_eq!((a.0, b.0, tally.games()), (1, 1, 2));
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
            let distinct: HashSet<u64> = openings.map(|opening| canonical(&game, &opening.position)).collect();
            assert_eq!(distinct.len(), 24);
        }
    }

    #[test]
    fn openings_become_longer_where_there_are_too_few_and_repeat_where_the_game_has_no_more() {
        let game = TicTacToe::new();
        let distinct = |count: usize, plies: u16| {
            let openings = openings(&game, settings(count, plies), 0, &mut rng(1));
            assert_eq!(openings.len(), count);
            openings.iter().map(|opening| canonical(&game, &opening.position)).collect::<HashSet<u64>>().len()
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
    fn a_seed_fixes_all_games_and_their_actions_lead_from_the_start_through_the_opening_to_the_outcome() {
        let game = ConnectFour::new();
        let openings = openings(&game, settings(10, 4), 0, &mut rng(1));
        let once = || played(&game, [&mut random(2), &mut random(3)], &openings);
        let played = once();
        assert_eq!(played.pairs(), once().pairs());
        for (opening, pair) in openings.iter().zip(played.pairs()) {
            assert_eq!(pair.opening_plies, opening.actions.len());
            for record in &pair.games {
                assert!(record.actions.starts_with(&opening.actions), "{record:?}");
                assert_eq!(game.outcome(&game.replay(&record.actions).unwrap()), Some(record.outcome));
            }
        }
    }

    #[test]
    fn a_pair_that_repeats_an_earlier_one_move_by_move_counts_once_also_over_several_calls() {
        let game = TicTacToe::new();
        let mut played = played(&game, [&mut Lowest, &mut Lowest], &[start(&game), start(&game)]);
        let go_on = &mut |_: usize| ControlFlow::Continue(());
        let _ = play(&game, [&mut Lowest, &mut Lowest], &[start(&game)], &mut played, go_on).unwrap();
        let openings = [played.tally(), played.tally_with_repetitions()].map(|tally| tally.openings());
        assert_eq!((openings, played.repeated_games()), ([1, 3], 4));
    }

    #[test]
    fn a_match_that_is_stopped_keeps_the_pairs_whose_games_are_over() {
        let game = TicTacToe::new();
        // From the second opening the player to move wins at once.
        let actions = [0, 3, 1, 4].map(Action).to_vec();
        let near = Opening { position: game.replay(&actions).unwrap(), actions };
        let (mut played, mut left) = (Played::default(), Vec::new());
        let mut pause = |games: usize| {
            left.push(games);
            if left.len() < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let flow = play(&game, [&mut Lowest, &mut Lowest], &[start(&game), near], &mut played, &mut pause).unwrap();
        assert_eq!((flow, left), (ControlFlow::Break(()), vec![2, 2]));
        assert_eq!((played.pairs().len(), played.pairs()[0].opening_plies), (1, 4));
    }

    #[test]
    fn a_failed_match_names_the_contestant_that_cannot_choose() {
        let fails = |contestants: [&mut dyn Contestant<TicTacToe>; 2]| {
            let go_on = &mut |_: usize| ControlFlow::Continue(());
            let game = TicTacToe::new();
            play(&game, contestants, &[start(&game)], &mut Played::default(), go_on).unwrap_err().contestant
        };
        assert_eq!((fails([&mut Failing, &mut Lowest]), fails([&mut Lowest, &mut Failing])), (0, 1));
    }
}

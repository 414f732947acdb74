//! Plays matches: many concurrent games between two [`Participant`]s, with each opening played from both sides. Start
//! with [`play`].

mod participant;
mod played;

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;

use game::{Action, Game, Outcome, Player};
use rand::{Rng, RngExt};

pub use participant::{Failure, Ongoing, Participant, Reply};
pub use played::{Counted, GameEnd, Pair, Played, PlayedGame, VoidOpening};

/// The settings of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Number of openings, each played in two games with sides exchanged.
    pub openings: usize,
    /// Maximum number of random plies in an opening. Without them, two deterministic players would repeat one game.
    pub opening_plies_max: u16,
}

/// Number of consecutive random draws that may repeat earlier openings before openings become longer.
const REPEATS_MAX: usize = 64;

/// A position from which two games start.
#[derive(Debug, Clone, PartialEq)]
pub struct Opening<P> {
    /// Actions from the start of the game to the position.
    pub actions: Vec<Action>,
    /// Position after these actions, never a final position.
    pub position: P,
}

/// The failure of a participant during a match.
#[derive(Debug, thiserror::Error)]
#[error("contestant {contestant} cannot choose a move")]
pub struct Error {
    /// Index of the participant: 0 or 1.
    pub contestant: usize,
    /// Error of the participant.
    pub source: Failure,
}

/// Draws openings from `rng`, skips the first `skipped` and returns the next `settings.openings`.
///
/// No two openings of a sequence are equal up to symmetry, because a repeated game between deterministic players adds
/// no evidence. If there are too few openings of that length, later openings have more plies; a game with too few
/// openings of any length repeats openings.
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
                tracing::warn!(openings = openings.len(), "too few openings; repeating them");
                seen.clear();
            }
        }
    }
    openings.split_off(skipped)
}

/// Plays each opening twice between two participants, with sides exchanged, and adds the games to `played`. The number
/// of concurrent games is limited by both participants. Returns `Break` if the match was stopped; complete pairs are
/// still added.
///
/// `pause` is called after every round of moves with the number of unfinished games: it may sleep, or stop the match.
///
/// # Errors
/// A participant can play no more games; [`Error`] names the participant. Complete pairs are still added.
pub fn play<G: Game>(
    game: &G,
    participants: [&mut dyn Participant<G>; 2],
    openings: &[Opening<G::Position>],
    played: &mut Played,
    pause: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Error> {
    let first = played.begin(openings.len());
    let mut table = Table::new(game, openings);
    let flow = table.play(participants, pause);
    for (index, (opening, result)) in (first..).zip(openings.iter().zip(table.results)) {
        match (result.void, result.games) {
            (Some(reason), _) => played.add_void(VoidOpening { opening: index, reason }),
            (None, [Some(one), Some(other)]) => played.add(index, opening.actions.len(), [one, other]),
            (None, _) => {}
        }
    }
    flow
}

type Participants<'p, G> = [&'p mut (dyn Participant<G> + 'p); 2];

/// The games of one call of [`play`].
struct Table<'a, G: Game> {
    game: &'a G,
    openings: &'a [Opening<G::Position>],
    /// Games that have not started.
    waiting: VecDeque<Seating>,
    /// Games in progress.
    boards: Vec<Board<G::Position>>,
    /// Results of each opening.
    results: Vec<OpeningResult>,
}

/// A game to play from an opening, which may not have started.
#[derive(Debug, Clone, Copy)]
struct Seating {
    /// Index of the opening.
    opening: usize,
    /// Index of the participant that moves first.
    first: usize,
}

struct Board<P> {
    position: P,
    actions: Vec<Action>,
    seating: Seating,
    /// The verdict on a game that the rules did not decide.
    verdict: Option<Verdict>,
}

/// The result of a game that the rules did not decide.
enum Verdict {
    Lost { loser: Player, end: GameEnd },
    Void { reason: String },
}

/// The results of both games of an opening, by the participant that moved first.
#[derive(Default)]
struct OpeningResult {
    games: [Option<PlayedGame>; 2],
    /// The reason why the opening has no result.
    void: Option<String>,
}

impl<'a, G: Game> Table<'a, G> {
    fn new(game: &'a G, openings: &'a [Opening<G::Position>]) -> Self {
        let seatings = |opening| [0, 1].map(|first| Seating { opening, first });
        let waiting = (0..openings.len()).flat_map(seatings).collect();
        let results = openings.iter().map(|_| OpeningResult::default()).collect();
        Self { game, openings, waiting, boards: Vec::new(), results }
    }

    /// Plays all games, and adds finished games to the results.
    fn play(
        &mut self,
        mut participants: Participants<'_, G>,
        pause: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        let concurrent_max = participants.iter().map(|participant| participant.concurrent_games_max()).min();
        let flow = loop {
            self.begin_games(concurrent_max.unwrap_or(usize::MAX));
            if self.boards.is_empty() {
                break Ok(ControlFlow::Continue(()));
            }
            match self.play_round(&mut participants) {
                Err(Error { source: Failure::Interrupted, .. }) => break Ok(ControlFlow::Break(())),
                Err(error) => break Err(error),
                Ok(()) => self.settle(&mut participants),
            }
            if pause(self.boards.len() + self.waiting.len()).is_break() {
                break Ok(ControlFlow::Break(()));
            }
        };
        self.boards.drain(..).for_each(|board| board.dismiss(&mut participants));
        flow
    }

    /// Starts games until `concurrent_max`, or at least one, are in progress.
    fn begin_games(&mut self, concurrent_max: usize) {
        let free = concurrent_max.max(1).saturating_sub(self.boards.len()).min(self.waiting.len());
        let board = |seating: Seating| {
            let Opening { actions, position } = &self.openings[seating.opening];
            Board { position: position.clone(), actions: actions.clone(), seating, verdict: None }
        };
        self.boards.extend(self.waiting.drain(..free).map(board));
    }

    /// Lets each participant move once, on every board with that participant to move.
    fn play_round(&mut self, participants: &mut Participants<'_, G>) -> Result<(), Error> {
        // The boards are divided by the player to move before either participant moves: a board advances by one ply
        // per round.
        let to_move: Vec<usize> = self.boards.iter().map(|board| board.participant_to_move(self.game)).collect();
        for (contestant, participant) in participants.iter_mut().enumerate() {
            let boards = self.boards.iter_mut().zip(&to_move);
            let mut boards: Vec<&mut Board<G::Position>> =
                boards.filter_map(|(board, &to_move)| (to_move == contestant).then_some(board)).collect();
            if boards.is_empty() {
                continue;
            }
            let games: Vec<Ongoing<'_, G::Position>> = boards.iter().map(|board| board.ongoing()).collect();
            let replies = participant.reply(self.game, &games).map_err(|source| Error { contestant, source })?;
            for (board, reply) in boards.iter_mut().zip(replies) {
                board.apply(self.game, reply);
            }
        }
        Ok(())
    }

    /// Adds finished games to the results, and stops games of void openings.
    fn settle(&mut self, participants: &mut Participants<'_, G>) {
        let game = self.game;
        let over: Vec<Board<G::Position>> = self.boards.extract_if(.., |board| board.is_over(game)).collect();
        let mut is_any_void = false;
        for board in over {
            board.dismiss(participants);
            let Seating { opening, first } = board.seating;
            match board.into_result(game) {
                Ok(played) => self.results[opening].games[first] = Some(played),
                Err(reason) => {
                    self.results[opening].void.get_or_insert(reason);
                    is_any_void = true;
                }
            }
        }
        if is_any_void {
            let is_void = |opening: usize| self.results[opening].void.is_some();
            self.waiting.retain(|seating| !is_void(seating.opening));
            let of_void = self.boards.extract_if(.., |board| is_void(board.seating.opening));
            of_void.for_each(|board| board.dismiss(participants));
        }
    }
}

impl<P> Board<P> {
    /// Returns the number of the game, unique on the table.
    fn number(&self) -> usize {
        2 * self.seating.opening + self.seating.first
    }

    fn ongoing(&self) -> Ongoing<'_, P> {
        Ongoing { number: self.number(), actions: &self.actions, position: &self.position }
    }

    fn participant_to_move<G: Game<Position = P>>(&self, game: &G) -> usize {
        match game.to_move(&self.position) {
            Player::First => self.seating.first,
            Player::Second => 1 - self.seating.first,
        }
    }

    fn apply<G: Game<Position = P>>(&mut self, game: &G, reply: Reply) {
        let loser = game.to_move(&self.position);
        self.verdict = match reply {
            Reply::Play(action) => {
                game.play(&mut self.position, action);
                self.actions.push(action);
                None
            }
            Reply::Resign => Some(Verdict::Lost { loser, end: GameEnd::Resigned }),
            Reply::Forfeit { reason } => Some(Verdict::Lost { loser, end: GameEnd::Forfeited { reason } }),
            Reply::Void { reason } => Some(Verdict::Void { reason }),
        };
    }

    fn is_over<G: Game<Position = P>>(&self, game: &G) -> bool {
        self.verdict.is_some() || game.outcome(&self.position).is_some()
    }

    /// Notifies both participants that the game is over or will not be continued.
    fn dismiss<G: Game<Position = P>>(&self, participants: &mut Participants<'_, G>) {
        participants.iter_mut().for_each(|participant| participant.end_game(self.number()));
    }

    /// Returns the finished game, or the reason why it is void.
    fn into_result<G: Game<Position = P>>(self, game: &G) -> Result<PlayedGame, String> {
        let (outcome, end) = match self.verdict {
            Some(Verdict::Void { reason }) => return Err(reason),
            Some(Verdict::Lost { loser, end }) => (Outcome::Win(loser.opponent()), end),
            None => (game.outcome(&self.position).expect("the rules decided the game"), GameEnd::Rules),
        };
        Ok(PlayedGame { actions: self.actions, outcome, end })
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
pub(crate) mod tests;

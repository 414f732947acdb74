//! The conformance suite for games and environments: checks the contract of [`Game`] at every ply of random episodes,
//! for every registered game.
//!
//! The suite is independent of any particular game. Other tests cover perft counts, solved positions and the
//! agreement of environments with published implementations. `references` compares games with slow rules, `cells`
//! checks the order of actions that name cells, and `boards` compares boards with the rendered text. A seed determines
//! every run. A violation of the contract panics with the game, the seed and the actions that lead to it. Start with
//! [`run`].

mod boards;
mod cells;
mod chances;
mod environment_flaws;
mod flaws;
mod references;

use std::collections::HashMap;

use game::{
    Action, Dynamics, Error, Game, HEURISTIC_MAX, ObservationRange, ObservationShape, Outcome, Player, Players,
    Scoring, Symmetry,
};
use games::{GAMES, GameKind};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Approximate number of plies over all episodes: enough for dozens of small games, a few on the largest boards.
const PLIES: usize = 1_500;
const EPISODES_MIN: usize = 3;
const EPISODES_MAX: usize = 60;
/// Number of seeds for which the same actions are played: in every environment, some have equal starts.
const SEEDS: u64 = 256;

/// Texts that are no move in any notation.
const NOT_MOVES: [&str; 6] =
    ["", "   ", "\u{0}", "💥", "é?ß", "no such move, nor anything like one in any game we know"];
/// Texts that may be moves in some notation and must not panic in any.
const MAYBE_MOVES: [&str; 16] = [
    "0",
    "1",
    "-1",
    "+1",
    "00",
    "65535",
    "65536",
    "99999999999999999999999",
    "a",
    "a0",
    "z99",
    "aé",
    "A1",
    "1a",
    "pass",
    "é1",
];

#[test]
fn every_registered_game_conforms() {
    for (seed, name) in (1..).zip(GAMES.iter().flat_map(|entry| entry.examples())) {
        run(&name.parse::<GameKind>().unwrap().rules(), seed);
    }
}

/// Plays random episodes of `game` from `seed` and checks the whole contract of [`Game`] at every ply.
///
/// # Panics
/// If the game violates the contract: the message contains the seed and the actions that lead to the violation.
fn run<G: Game>(game: &G, seed: u64) {
    check_spec(game);
    for (index, symmetry) in game.symmetries().iter().enumerate() {
        check_tables(game, index, symmetry);
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut seen = Seen::default();
    let (mut episodes, mut plies) = (0, 0);
    while episodes < EPISODES_MIN || (episodes < EPISODES_MAX && plies < PLIES) {
        plies += Walk::new(game, rng.random(), &mut seen).episode(&mut rng);
        episodes += 1;
    }
    check_seeds(game);
    chances::check(game, &mut rng);
}

fn check_spec<G: Game>(game: &G) {
    let spec = game.spec();
    let name = &spec.name;
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    assert!(!name.is_empty() && name.chars().all(allowed), "`{name}`: the name is made of a-z, 0-9, _ and -");
    assert!((1..=65_536).contains(&spec.actions), "{name}: {} actions do not fit 16 bits", spec.actions);
    assert!(spec.observation.len() > 0, "{name}: the observation {:?} is empty", spec.observation);
    assert!(spec.max_plies > 0, "{name}: no action may ever be played");
    if spec.scoring == Scoring::Rewards {
        // The seed of an episode, unlike the actions, has no image.
        assert!(game.symmetries().len() == 1, "{name}: episodes that depend on seeds have the identity alone");
        assert!(spec.players == Players::One, "{name}: a game scored by its rewards is for one player");
        let is_vector = spec.observation_range == ObservationRange::Unit || is_vector(spec.observation);
        assert!(is_vector, "{name}: planes have values in [0, 1]");
    }
}

fn is_vector(shape: ObservationShape) -> bool {
    shape.height * shape.width == 1
}

/// Checks how the episodes of a game depend on the seed.
fn check_seeds<G: Game>(game: &G) {
    let spec = game.spec();
    let name = &spec.name;
    assert!(game.start() == game.start_from(0), "{name}: the start is not that of the episode with seed 0");
    let is_stochastic = spec.dynamics == Dynamics::Stochastic;
    let first = History::of(game, 0);
    let mut others = (1..SEEDS).map(|seed| History::of(game, seed));
    if spec.scoring == Scoring::Outcome {
        // Not all at once: the observations of the largest boards are large.
        let same = others.all(|other| other == first);
        assert!(same, "{name}: episodes of a game without chance depend on their seed");
        assert!(!is_stochastic, "{name}: stochastic, but no action has two results");
        return;
    }
    let histories: Vec<_> = [first].into_iter().chain(others).collect();
    let same = histories.iter().all(|history| *history == histories[0]);
    assert!(!same, "{name}: no episode depends on its seed");
    let differ = |one: &History| histories.iter().any(|other| one.starts_like(other) && one != other);
    assert!(!is_stochastic || histories.iter().any(differ), "{name}: stochastic, but no action has two results");
}

/// Everything that the player of an episode sees.
#[derive(PartialEq)]
struct History {
    /// Observation at the start and after each action.
    observations: Vec<Vec<f32>>,
    rewards: Vec<f32>,
}

impl History {
    /// Plays up to 64 plies of the episode with this seed; the actions depend only on the legal actions.
    fn of<G: Game>(game: &G, seed: u64) -> Self {
        let mut position = game.start_from(seed);
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut legal = Vec::new();
        let mut history = Self { observations: vec![observation(game, &position)], rewards: Vec::new() };
        for _ in 0..64 {
            game.legal_actions(&position, &mut legal);
            if legal.is_empty() {
                break;
            }
            history.rewards.push(game.play(&mut position, legal[rng.random_range(0..legal.len())]));
            history.observations.push(observation(game, &position));
        }
        history
    }

    /// Returns true if the two episodes look equal before the first action.
    fn starts_like(&self, other: &Self) -> bool {
        self.observations[0] == other.observations[0]
    }
}

/// Returns the observation of a position; NaN for values that are not written.
fn observation<G: Game>(game: &G, position: &G::Position) -> Vec<f32> {
    let mut planes = vec![f32::NAN; game.spec().observation.len()];
    game.observe(position, &mut planes);
    planes
}

fn check_tables<G: Game>(game: &G, index: usize, symmetry: &Symmetry) {
    let spec = game.spec();
    let shape = spec.observation;
    let tables = [
        ("planes", &symmetry.planes, shape.planes),
        ("cells", &symmetry.cells, shape.height * shape.width),
        ("actions", &symmetry.actions, spec.actions),
    ];
    for (table, entries, len) in tables {
        let mut sorted = entries.clone();
        sorted.sort_unstable();
        let is_permutation = sorted.len() == len && sorted.iter().enumerate().all(|(i, &entry)| i == entry as usize);
        assert!(is_permutation, "{}: {table} of symmetry {index} are not a permutation of 0..{len}", spec.name);
    }
    if index == 0 {
        let identity = Symmetry::identity(shape, spec.actions);
        assert!(*symmetry == identity, "{}: symmetry 0 is not the identity", spec.name);
    }
}

/// Properties by hash, over all episodes.
#[derive(Default)]
struct Seen {
    positions: HashMap<u64, Properties>,
    /// Reward of an action, and the hash after it.
    results: HashMap<(u64, Action), (f32, u64)>,
}

/// The properties shared by positions with equal hashes.
struct Properties {
    observation: Vec<f32>,
    legal: Vec<Action>,
    to_move: Player,
}

/// Plays one episode and, in parallel, the image under every symmetry.
struct Walk<'a, G: Game> {
    game: &'a G,
    seed: u64,
    actions: Vec<Action>,
    position: G::Position,
    images: Vec<G::Position>,
    legal: Vec<Action>,
    observation: Vec<f32>,
    seen: &'a mut Seen,
}

/// Asserts a property of the contract on a [`Walk`].
macro_rules! promise {
    ($walk:expr, $holds:expr, $($message:tt)+) => {
        if !$holds {
            $walk.broken(format_args!($($message)+));
        }
    };
}

impl<'a, G: Game> Walk<'a, G> {
    fn new(game: &'a G, seed: u64, seen: &'a mut Seen) -> Self {
        let position = game.start_from(seed);
        let images = vec![position.clone(); game.symmetries().len()];
        Self { game, seed, actions: Vec::new(), position, images, legal: Vec::new(), observation: Vec::new(), seen }
    }

    fn broken(&self, promise: std::fmt::Arguments<'_>) -> ! {
        let name = &self.game.spec().name;
        let actions: Vec<u16> = self.actions.iter().map(|action| action.0).collect();
        panic!("{name}, seed {}, after actions {actions:?}: {promise}\n{:?}", self.seed, self.position)
    }

    /// Plays a random episode to the end; returns the number of plies.
    fn episode(&mut self, rng: &mut impl Rng) -> usize {
        promise!(self, self.game.outcome(&self.position).is_none(), "the game is over before it starts");
        loop {
            self.check_position();
            if self.legal.is_empty() {
                break;
            }
            self.check_notation(rng);
            self.check_illegal_actions();
            let action = self.legal[rng.random_range(0..self.legal.len())];
            self.play(action);
        }
        self.check_illegal_actions();
        self.check_replay(self.actions.len());
        self.check_replay(rng.random_range(0..=self.actions.len()));
        self.actions.len()
    }

    fn check_position(&mut self) {
        self.check_legal_actions();
        self.check_outcome();
        self.observation = self.observe(&self.position);
        let (in_range, range): (fn(f32) -> bool, _) = match self.game.spec().observation_range {
            ObservationRange::Unit => (|value| (0.0..=1.0).contains(&value), "values in [0, 1]"),
            ObservationRange::Finite => (f32::is_finite, "finite values"),
        };
        let values_in_range = self.observation.iter().all(|&value| in_range(value));
        promise!(self, values_in_range, "the observation is not written whole with {range}");
        promise!(self, !self.game.render(&self.position).trim().is_empty(), "nothing is rendered");
        let flaw = boards::flaw(self.game, &self.position, &self.legal);
        promise!(self, flaw.is_none(), "the board is wrong: {flaw:?}");
        let heuristic = self.game.heuristic_value(&self.position);
        promise!(self, heuristic.abs() <= HEURISTIC_MAX, "the heuristic value is {heuristic}");
        self.check_hash();
        for index in 0..self.images.len() {
            self.check_image(index);
        }
    }

    fn observe(&self, position: &G::Position) -> Vec<f32> {
        observation(self.game, position)
    }

    fn legal_actions(&self, position: &G::Position) -> Vec<Action> {
        // Earlier content of the vector must be removed.
        let mut legal = vec![Action(u16::MAX); 3];
        self.game.legal_actions(position, &mut legal);
        legal
    }

    fn check_legal_actions(&mut self) {
        self.legal = self.legal_actions(&self.position);
        promise!(self, self.legal.is_sorted_by(|a, b| a < b), "legal actions are not ascending: {:?}", self.legal);
        for action in all_actions(self.game.spec().actions) {
            let listed = self.legal.binary_search(&action).is_ok();
            let is_legal = self.game.is_legal(&self.position, action);
            promise!(self, listed == is_legal, "{action} is listed: {listed}, but is_legal returns {is_legal}");
        }
        for action in [self.game.spec().actions, usize::from(u16::MAX)] {
            let Some(action) = u16::try_from(action).ok().map(Action) else { continue };
            let exists = action.index() < self.game.spec().actions;
            promise!(
                self,
                exists || !self.game.is_legal(&self.position, action),
                "{action} is legal and does not exist"
            );
        }
    }

    fn check_outcome(&self) {
        let outcome = self.game.outcome(&self.position);
        let over = outcome.is_some();
        promise!(self, over == self.legal.is_empty(), "outcome {outcome:?}, and {} legal actions", self.legal.len());
        let max_plies = self.game.spec().max_plies;
        promise!(self, over || self.actions.len() < max_plies, "the game goes on after max_plies = {max_plies}");
        self.check_scoring(outcome);
        if self.game.spec().players == Players::One {
            let second = Outcome::Win(Player::Second);
            promise!(self, outcome != Some(second), "the second player of a game for one player won");
            let first_moves = over || self.game.to_move(&self.position) == Player::First;
            promise!(self, first_moves, "the second player of a game for one player is to move");
        }
    }

    /// Checks that the kind of end matches the scoring of the game.
    fn check_scoring(&self, outcome: Option<Outcome>) {
        let Some(outcome) = outcome else { return };
        let scoring = self.game.spec().scoring;
        let by_rewards = matches!(outcome, Outcome::Finished | Outcome::Truncated);
        let fits = by_rewards == (scoring == Scoring::Rewards);
        promise!(self, fits, "a game scored by {scoring:?} ends with {outcome:?}");
        let (plies, max_plies) = (self.actions.len(), self.game.spec().max_plies);
        let at_the_limit = outcome != Outcome::Truncated || plies == max_plies;
        promise!(self, at_the_limit, "truncated after {plies} of {max_plies} plies");
    }

    fn check_hash(&mut self) {
        let hash = self.game.hash(&self.position);
        promise!(self, hash == self.game.hash(&self.position.clone()), "a copy of the position has another hash");
        let to_move = self.game.to_move(&self.position);
        if let Some(seen) = self.seen.positions.get(&hash) {
            promise!(self, seen.observation == self.observation, "two observations share the hash {hash:#018x}");
            promise!(self, seen.legal == self.legal, "two lists of legal actions share the hash {hash:#018x}");
            promise!(self, seen.to_move == to_move, "two players to move share the hash {hash:#018x}");
        } else {
            let seen = Properties { observation: self.observation.clone(), legal: self.legal.clone(), to_move };
            self.seen.positions.insert(hash, seen);
        }
    }

    /// Checks that the tables map the position to the image, which was reached by playing the images of all actions.
    fn check_image(&self, index: usize) {
        let symmetry = &self.game.symmetries()[index];
        let image = &self.images[index];
        let mut expected = vec![f32::NAN; self.observation.len()];
        symmetry.observation(&self.observation, &mut expected);
        promise!(self, self.observe(image) == expected, "symmetry {index} does not commute with observe");
        let mut expected: Vec<Action> = self.legal.iter().map(|&action| symmetry.action(action)).collect();
        expected.sort_unstable();
        promise!(self, self.legal_actions(image) == expected, "symmetry {index} does not commute with legal_actions");
        let outcomes = [&self.position, image].map(|position| self.game.outcome(position));
        promise!(
            self,
            outcomes[0] == outcomes[1],
            "symmetry {index} turns outcome {:?} into {:?}",
            outcomes[0],
            outcomes[1]
        );
        let movers = [&self.position, image].map(|position| self.game.to_move(position));
        let same_mover = outcomes[0].is_some() || movers[0] == movers[1];
        promise!(self, same_mover, "symmetry {index} changes the player to move");
        let made = self.game.image(&self.position, index);
        let is_image = self.game.hash(&made) == self.game.hash(image) && self.observe(&made) == self.observe(image);
        promise!(self, is_image, "the image under symmetry {index} is another position");
        let heuristics = [&self.position, image].map(|position| self.game.heuristic_value(position));
        let same_heuristic = outcomes[0].is_some() || heuristics[0] == heuristics[1];
        promise!(self, same_heuristic, "the image under symmetry {index} has another heuristic value: {heuristics:?}");
    }

    fn check_notation(&self, rng: &mut impl Rng) {
        let mut names = HashMap::new();
        for &action in &self.legal {
            let name = self.game.action_name(&self.position, action);
            let read = self.game.parse_action(&self.position, &name);
            promise!(self, read == Ok(action), "{action} is called `{name}`, which reads as {read:?}");
            let other = names.insert(name, action);
            promise!(self, other.is_none(), "{other:?} and {action} have the same name");
        }
        for text in NOT_MOVES {
            let read = self.game.parse_action(&self.position, text);
            promise!(self, matches!(read, Err(Error::Notation { .. })), "{text:?} reads as {read:?}");
        }
        let random: String = (0..rng.random_range(1..6)).map(|_| rng.random_range('\u{20}'..'\u{7f}')).collect();
        for text in MAYBE_MOVES.into_iter().chain([random.as_str()]) {
            match self.game.parse_action(&self.position, text) {
                Ok(action) => {
                    let exists = action.index() < self.game.spec().actions;
                    promise!(self, exists, "`{text}` reads as {action}, which does not exist");
                }
                Err(error) => {
                    let is_notation = matches!(error, Error::Notation { .. });
                    promise!(self, is_notation, "`{text}` is refused with {error:?} instead of Error::Notation");
                }
            }
        }
    }

    fn check_illegal_actions(&self) {
        let mut position = self.position.clone();
        let illegal = all_actions(self.game.spec().actions).filter(|action| self.legal.binary_search(action).is_err());
        for action in illegal {
            let refused = matches!(self.game.try_play(&mut position, action), Err(Error::Illegal { .. }));
            promise!(self, refused, "try_play does not refuse {action}");
            promise!(self, position == self.position, "try_play refuses {action} and changes the position");
        }
    }

    fn play(&mut self, action: Action) {
        let hash = self.game.hash(&self.position);
        let (board, mover) = (self.game.board(&self.position), self.game.to_move(&self.position));
        let reward = self.game.play(&mut self.position, action);
        self.actions.push(action);
        promise!(self, reward.is_finite(), "the reward is {reward}");
        if let (Some(before), Some(after)) = (board, self.game.board(&self.position)) {
            let flaw = boards::flaw_of_move(&before, &after, action, mover);
            promise!(self, flaw.is_none(), "the board is wrong: {flaw:?}");
        }
        let by_outcome = self.game.spec().scoring == Scoring::Outcome;
        promise!(self, !by_outcome || reward == 0.0, "a game scored by its outcome has the reward {reward}");
        let result = (reward, self.game.hash(&self.position));
        promise!(self, result.1 != hash, "the last action did not change the hash");
        let first = *self.seen.results.entry((hash, action)).or_insert(result);
        promise!(self, first == result, "equal hashes, and {action} has the results {first:?} and {result:?}");
        let mut images = std::mem::take(&mut self.images);
        for (index, (image, symmetry)) in images.iter_mut().zip(self.game.symmetries()).enumerate() {
            let of_image = self.game.try_play(image, symmetry.action(action));
            promise!(
                self,
                of_image == Ok(reward),
                "the last action has reward {reward}, its image {index} {of_image:?}"
            );
        }
        self.images = images;
    }

    /// Checks that replaying the first `plies` actions leads to the same position, and that a further illegal action
    /// is named.
    fn check_replay(&self, plies: usize) {
        let mut position = self.game.start_from(self.seed);
        for &action in &self.actions[..plies] {
            self.game.play(&mut position, action);
        }
        let replayed = self.game.replay_from(self.seed, &self.actions[..plies]);
        promise!(self, replayed.as_ref() == Ok(&position), "replay of {plies} plies gives {replayed:?}");
        promise!(
            self,
            plies < self.actions.len() || position == self.position,
            "another walk of the same actions differs"
        );
        let hashes = [&position, replayed.as_ref().unwrap_or(&position)].map(|position| self.game.hash(position));
        promise!(self, hashes[0] == hashes[1], "equal positions have different hashes");
        let Some(illegal) =
            all_actions(self.game.spec().actions).find(|&action| !self.game.is_legal(&position, action))
        else {
            return;
        };
        let mut actions = self.actions[..plies].to_vec();
        actions.push(illegal);
        let error = Error::IllegalAt { game: self.game.spec().name.clone(), ply: plies, action: illegal };
        promise!(
            self,
            self.game.replay_from(self.seed, &actions) == Err(error),
            "replay accepts {illegal} at ply {plies}"
        );
    }
}

fn all_actions(actions: usize) -> impl Iterator<Item = Action> {
    (0..actions).map(|action| Action(u16::try_from(action).expect("the number of actions was checked")))
}

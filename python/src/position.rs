//! The class `Position`: one immutable position of a game, with the actions so far.

use game::{Action, Game as _, Outcome, Player, Players, Scoring};
use games::{AnyGame, AnyPosition};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::arrays;
use crate::errors;
use crate::rules::Game;

/// Maximum number of games in one call.
pub(crate) const GAMES_MAX: usize = 65_536;

/// Number of games read or replayed between two checks for Ctrl-C.
const REPLAYS_UNINTERRUPTED: usize = 256;

/// What pickle stores: the method `position` of the game, and the actions and the seed as arguments.
type Reduced<'py> = (Bound<'py, PyAny>, (Vec<u16>, u64));

/// A position of a game. It never changes: `play` returns another position.
#[pyclass(frozen, subclass, skip_from_py_object, module = "zerofleet._zerofleet")]
#[derive(Debug, Clone)]
pub(crate) struct Position {
    /// The game.
    #[pyo3(get)]
    pub(crate) game: Game,
    pub(crate) at: AnyPosition,
    pub(crate) actions: Vec<Action>,
    /// Seed of the episode.
    #[pyo3(get)]
    pub(crate) seed: u64,
    /// Reward of the last action, for the player who chose the action.
    #[pyo3(get)]
    reward: f32,
    /// Sum of rewards of the first player; the second player has the opposite.
    total: f64,
}

/// Plays a legal action. Returns the reward for the player who chose the action, and the outcome if the game is over.
/// In a game scored by the outcome, the reward is 1 for a win, −1 for a loss, and 0 otherwise.
pub(crate) fn play(rules: &AnyGame, at: &mut AnyPosition, action: Action) -> (f32, Option<Outcome>) {
    let mover = rules.to_move(at);
    let reward = rules.play(at, action);
    let outcome = rules.outcome(at);
    match rules.spec().scoring {
        Scoring::Rewards => (reward, outcome),
        Scoring::Outcome => (outcome.map_or(0.0, |outcome| outcome.value_for(mover)), outcome),
    }
}

/// Returns the outcome as a name in Python: `first_wins`.
pub(crate) fn outcome_name(outcome: Outcome) -> String {
    outcome.name().replace(' ', "_")
}

/// Sets the bytes `[A]` of legal actions to 1.
pub(crate) fn write_legal(rules: &AnyGame, at: &AnyPosition, mask: &mut [u8]) {
    let mut legal = Vec::new();
    rules.legal_actions(at, &mut legal);
    for action in legal {
        mask[action.index()] = 1;
    }
}

impl Position {
    /// Returns the position before the first action of the episode with this seed.
    pub(crate) fn start(game: &Game, seed: u64) -> Self {
        let at = game.rules.start_from(seed);
        Self { game: game.clone(), at, actions: Vec::new(), seed, reward: 0.0, total: 0.0 }
    }

    /// Returns the action of an argument: the number, or text in the notation of the game. The action may be illegal.
    ///
    /// # Errors
    /// The argument is neither, or not an action of the game.
    pub(crate) fn chosen(&self, action: &Bound<'_, PyAny>) -> PyResult<Action> {
        match action.cast::<PyString>() {
            Ok(text) => self.game.rules.parse_action(&self.at, text.to_str()?).map_err(errors::rejected),
            Err(_) => self.game.action(action.extract::<i64>()?).map_err(errors::rejected),
        }
    }

    /// Plays an action in place.
    ///
    /// # Errors
    /// The action is illegal; the position is then unchanged.
    pub(crate) fn advance(&mut self, action: Action) -> PyResult<()> {
        let rules = &*self.game.rules;
        if !rules.is_legal(&self.at, action) {
            let (game, ply) = (rules.spec().name.clone(), self.actions.len());
            return Err(errors::rejected(game::Error::IllegalAt { game, ply, action }));
        }
        let sign = if rules.to_move(&self.at) == Player::First { 1.0 } else { -1.0 };
        (self.reward, _) = play(rules, &mut self.at, action);
        self.total += sign * f64::from(self.reward);
        self.actions.push(action);
        Ok(())
    }
}

#[pymethods]
impl Position {
    #[new]
    fn new(position: &Self) -> Self {
        position.clone()
    }

    /// Index of the player to move, 0 or 1; unspecified once the game is over.
    #[getter]
    fn to_move(&self) -> usize {
        self.game.rules.to_move(&self.at).index()
    }

    /// True once the game is over.
    #[getter]
    fn is_over(&self) -> bool {
        self.game.rules.outcome(&self.at).is_some()
    }

    /// `None` before the end, then `"first_wins"`, `"draw"` or `"second_wins"`; `"finished"` or `"truncated"` for
    /// games scored by rewards.
    #[getter]
    fn outcome(&self) -> Option<String> {
        self.game.rules.outcome(&self.at).map(outcome_name)
    }

    /// Return of each player so far: 1, 0 or −1, or the sum of rewards.
    #[getter]
    fn returns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match self.game.rules.spec().players {
            Players::One => PyTuple::new(py, [self.total]),
            // The difference is never −0.
            Players::Two => PyTuple::new(py, [self.total, 0.0 - self.total]),
        }
    }

    /// Numbers of the actions from the start.
    #[getter]
    fn actions(&self) -> Vec<u16> {
        self.actions.iter().map(|action| action.0).collect()
    }

    /// Returns the numbers of the legal actions in ascending order; none once the game is over.
    fn legal_actions(&self) -> Vec<u16> {
        let mut legal = Vec::new();
        self.game.rules.legal_actions(&self.at, &mut legal);
        legal.iter().map(|action| action.0).collect()
    }

    /// Returns one byte per action `[A]`, 1 for a legal action.
    #[pyo3(name = "_legal")]
    fn legal<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let rules = &*self.game.rules;
        arrays::bytes(py, 1, rules.spec().actions, |_, mask| write_legal(rules, &self.at, mask))
    }

    /// Returns the observation of the player to move as float32 `[C, H, W]`.
    #[pyo3(name = "_observation")]
    fn observation<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let rules = &*self.game.rules;
        arrays::floats(py, 1, rules.spec().observation.len(), |_, planes| rules.observe(&self.at, planes))
    }

    /// Returns the position after an action, given by number or in the notation of the game.
    fn play(&self, action: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut next = self.clone();
        next.advance(self.chosen(action)?)?;
        Ok(next)
    }

    /// Returns the action in the notation of the game.
    fn action_name(&self, action: i64) -> PyResult<String> {
        let action = self.game.action(action).map_err(errors::rejected)?;
        Ok(self.game.rules.action_name(&self.at, action))
    }

    /// Returns the number of the action in the notation of the game, legal or not.
    fn parse_action(&self, text: &str) -> PyResult<u16> {
        Ok(self.game.rules.parse_action(&self.at, text).map_err(errors::rejected)?.0)
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.game.kind == other.game.kind && self.at == other.at
    }

    fn __hash__(&self) -> u64 {
        self.game.rules.hash(&self.at)
    }

    fn __str__(&self) -> String {
        self.game.rules.render(&self.at)
    }

    fn __repr__(&self) -> String {
        let seed = if self.seed == 0 { String::new() } else { format!(", seed={}", self.seed) };
        format!("Game('{}').position({:?}{seed})", self.game.rules.spec().name, self.actions())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        // The attribute of a class in Python may be that of a subclass.
        let restore = slf.as_any().getattr("game")?.getattr("position")?;
        Ok((restore, (slf.get().actions(), slf.get().seed)))
    }
}

/// Returns the observations float32 `[B, C, H, W]` after the actions of each of B episodes `(seed, actions)`, replayed
/// without the interpreter lock.
#[pyfunction]
#[pyo3(name = "_observations")]
pub(crate) fn observations<'py>(
    py: Python<'py>,
    game: &Game,
    episodes: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyBytes>> {
    let count = episodes.len();
    if count > GAMES_MAX {
        return Err(errors::rejected(format!("{count} episodes are more than {GAMES_MAX}")));
    }
    let rules = &*game.rules;
    let mut replays = Vec::with_capacity(count);
    for episode in episodes.iter() {
        let (seed, numbers) = episode.extract::<(u64, Bound<'_, PyList>)>()?;
        let (index, count, max) = (replays.len(), numbers.len(), rules.spec().max_plies);
        if index.is_multiple_of(REPLAYS_UNINTERRUPTED) {
            py.check_signals()?;
        }
        if count > max {
            return Err(errors::rejected(format!("episode {index} has {count} actions, more than {max}")));
        }
        let actions: Vec<Action> = numbers.extract::<Vec<u16>>()?.into_iter().map(Action).collect();
        replays.push((seed, actions));
    }
    let mut positions = Vec::with_capacity(replays.len());
    for replays in replays.chunks(REPLAYS_UNINTERRUPTED) {
        let replayed = py.detach(|| {
            for (seed, actions) in replays {
                let (index, position) = (positions.len(), rules.replay_from(*seed, actions));
                positions.push(position.map_err(|error| format!("episode {index}: {error}"))?);
            }
            Ok::<_, String>(())
        });
        replayed.map_err(errors::rejected)?;
        py.check_signals()?;
    }
    let write = |index: usize, planes: &mut [f32]| rules.observe(&positions[index], planes);
    arrays::floats(py, positions.len(), rules.spec().observation.len(), write)
}

//! The class `Game`: the rules of a game or an environment, by name.

use std::sync::Arc;

use game::{Action, Game as _, Players, Scoring};
use games::{AnyGame, GAMES, GameKind};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::errors;
use crate::position::Position;

/// The rules of a game or an environment. `Game("connect_four")` selects them by name.
#[pyclass(frozen, subclass, skip_from_py_object, module = "zerofleet._zerofleet")]
#[derive(Debug, Clone)]
pub(crate) struct Game {
    pub(crate) kind: GameKind,
    pub(crate) rules: Arc<AnyGame>,
}

impl Game {
    /// Returns the action with this number, legal or not.
    ///
    /// # Errors
    /// The game has fewer actions.
    pub(crate) fn action(&self, number: i64) -> Result<Action, String> {
        let spec = self.rules.spec();
        let action = u16::try_from(number).ok().map(Action).filter(|action| action.index() < spec.actions);
        action
            .ok_or_else(|| format!("{number} is not an action of {}: actions are 0 to {}", spec.name, spec.actions - 1))
    }
}

#[pymethods]
impl Game {
    /// Returns the game with this name; a game is also accepted.
    ///
    /// # Errors
    /// No game has this name.
    #[new]
    pub(crate) fn new(name: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(game) = name.cast::<Self>() {
            return Ok(game.get().clone());
        }
        let kind: GameKind = name.extract::<String>()?.parse().map_err(|error: games::Error| errors::failed(&error))?;
        Ok(Self { rules: Arc::new(kind.rules()), kind })
    }

    /// Name, with the board size if there are several: `hex-11`.
    #[getter]
    fn name(&self) -> &str {
        &self.rules.spec().name
    }

    /// A, the number of actions, legal or not.
    #[getter]
    fn actions(&self) -> usize {
        self.rules.spec().actions
    }

    /// Shape of an observation, `(C, H, W)`; `(C, 1, 1)` for a vector.
    #[getter]
    fn observation_shape(&self) -> (usize, usize, usize) {
        let shape = self.rules.spec().observation;
        (shape.planes, shape.height, shape.width)
    }

    /// Number of players, 1 or 2.
    #[getter]
    fn players(&self) -> usize {
        if self.rules.spec().players == Players::One { 1 } else { 2 }
    }

    /// Scoring of an episode: `"outcome"` for a win, a draw or a loss, `"rewards"` for the sum of rewards.
    #[getter]
    fn scoring(&self) -> &'static str {
        if self.rules.spec().scoring == Scoring::Outcome { "outcome" } else { "rewards" }
    }

    /// Maximum number of actions in an episode.
    #[getter]
    fn max_plies(&self) -> usize {
        self.rules.spec().max_plies
    }

    /// The preset of a run, as TOML.
    #[getter]
    fn preset(&self) -> &'static str {
        self.kind.entry().preset
    }

    /// Returns the position before the first action of the episode with this seed.
    #[pyo3(signature = (seed=0))]
    fn start(&self, seed: u64) -> Position {
        Position::start(self, seed)
    }

    /// Returns the position after these moves: numbers of actions, or text in the notation of the game. A single text
    /// has moves separated by whitespace.
    #[pyo3(signature = (moves, seed=0))]
    fn position(&self, moves: &Bound<'_, PyAny>, seed: u64) -> PyResult<Position> {
        let mut position = self.start(seed);
        let moves = match moves.cast::<PyString>() {
            Ok(text) => text.call_method0("split")?,
            Err(_) => moves.clone(),
        };
        // No action is legal after the end, which bounds the moves.
        for chosen in moves.try_iter()? {
            position.advance(position.chosen(&chosen?)?)?;
        }
        Ok(position)
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.kind == other.kind
    }

    fn __hash__(&self) -> u64 {
        self.name().bytes().fold(0, |hash, byte| game::mix(hash ^ u64::from(byte)))
    }

    fn __repr__(&self) -> String {
        format!("Game('{}')", self.name())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, (String,)) {
        (slf.as_any().get_type(), (slf.get().name().to_owned(),))
    }
}

/// Returns the names of all games; of a game with many boards the smallest, a usual and the largest.
#[pyfunction]
pub(crate) fn game_names() -> Vec<String> {
    GAMES.iter().flat_map(|entry| entry.examples()).collect()
}

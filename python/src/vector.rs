//! The class `VectorGames`: many games of one kind that advance together.

use game::{Action, Game as _, Outcome, mix};
use games::AnyPosition;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arrays;
use crate::errors;
use crate::position::{GAMES_MAX, outcome_name, play, write_legal};
use crate::rules::Game;

/// N games that advance together, each until the end. A game that is over waits for `reset`.
#[pyclass(subclass, module = "zerofleet._zerofleet")]
#[derive(Debug)]
pub(crate) struct VectorGames {
    /// The game.
    #[pyo3(get)]
    game: Game,
    episodes: Vec<Episode>,
}

#[derive(Debug, Clone)]
struct Episode {
    at: AnyPosition,
    seed: u64,
}

/// The results of one step, as bytes: float32 `[N]`, and two flags `[N]`.
type Steps<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

impl VectorGames {
    /// Returns the action of each game; `None` for games that are over.
    ///
    /// # Errors
    /// The number of actions is wrong, or one is illegal.
    fn chosen(&self, actions: &[u8]) -> Result<Vec<Option<Action>>, String> {
        let (numbers, rest) = actions.as_chunks::<8>();
        let games = self.episodes.len();
        if numbers.len() != games || !rest.is_empty() {
            return Err(format!("{games} games take {games} actions, not {}", numbers.len()));
        }
        let rules = &*self.game.rules;
        let chosen = numbers.iter().zip(&self.episodes).enumerate().map(|(index, (&number, episode))| {
            if rules.outcome(&episode.at).is_some() {
                return Ok(None);
            }
            let number = i64::from_ne_bytes(number);
            let legal = u16::try_from(number).ok().map(Action).filter(|&action| rules.is_legal(&episode.at, action));
            let rejected =
                || format!("game {index}: action {number} is not legal in this position of {}", rules.spec().name);
            legal.map(Some).ok_or_else(rejected)
        });
        chosen.collect()
    }

    /// Returns the index of a game.
    fn index(&self, index: i64) -> PyResult<usize> {
        let games = self.episodes.len();
        let index_in = usize::try_from(index).ok().filter(|&index| index < games);
        index_in.ok_or_else(|| errors::rejected(format!("there is no game {index}: games are 0 to {}", games - 1)))
    }

    /// Returns the indices of an argument; all games for `None`.
    fn indices(&self, given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<usize>> {
        let games = self.episodes.len();
        let Some(given) = given else { return Ok((0..games).collect()) };
        let indices = given.try_iter()?.take(games + 1).map(|index| self.index(index?.extract::<i64>()?));
        let indices = indices.collect::<PyResult<Vec<_>>>()?;
        if indices.len() > games {
            return Err(errors::rejected(format!("there are more indices than the {games} games")));
        }
        Ok(indices)
    }
}

#[pymethods]
impl VectorGames {
    #[new]
    #[pyo3(signature = (game, count, seed=0))]
    fn new(py: Python<'_>, game: &Bound<'_, PyAny>, count: i64, seed: u64) -> PyResult<Self> {
        let game = Game::new(game)?;
        let games = usize::try_from(count).ok().filter(|games| (1..=GAMES_MAX).contains(games));
        let games = games.ok_or_else(|| errors::rejected(format!("the count is 1 to {GAMES_MAX}, not {count}")))?;
        let idle = Episode { at: game.rules.start(), seed };
        let mut vector = Self { game, episodes: vec![idle; games] };
        vector.reset(py, Some(seed), None)?;
        Ok(vector)
    }

    /// Seed of the episode in each game.
    #[getter]
    fn seeds(&self) -> Vec<u64> {
        self.episodes.iter().map(|episode| episode.seed).collect()
    }

    fn __len__(&self) -> usize {
        self.episodes.len()
    }

    /// Starts an episode in the games with these indices, or in all games. With a seed, game i starts from seed + i;
    /// without one, from a seed that follows from the previous seed of the game.
    #[pyo3(signature = (seed=None, indices=None))]
    fn reset(&mut self, py: Python<'_>, seed: Option<u64>, indices: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let indices = self.indices(indices)?;
        let Self { game, episodes } = self;
        let rules = &*game.rules;
        py.detach(|| {
            for index in indices {
                let previous = episodes[index].seed;
                let seed = seed.map_or_else(|| mix(previous), |seed| seed.wrapping_add(index as u64));
                episodes[index] = Episode { at: rules.start_from(seed), seed };
            }
        });
        Ok(())
    }

    /// Plays one action in each game, int64 `[N]`; actions of games that are over are ignored. Returns the rewards
    /// float32 `[N]` for the players who chose the actions, and the flags `[N]` of games that this step has terminated
    /// and truncated. If an action is rejected, no game changes.
    #[pyo3(name = "_step")]
    fn step<'py>(&mut self, py: Python<'py>, actions: &[u8]) -> PyResult<Steps<'py>> {
        let mut rewards = Vec::with_capacity(self.episodes.len() * size_of::<f32>());
        let mut terminated = vec![0_u8; self.episodes.len()];
        let mut truncated = terminated.clone();
        let played = py.detach(|| {
            let chosen = self.chosen(actions)?;
            let Self { game, episodes } = self;
            for (index, (episode, action)) in episodes.iter_mut().zip(chosen).enumerate() {
                let played = action.map(|action| play(&game.rules, &mut episode.at, action));
                let (reward, outcome) = played.unwrap_or_default();
                rewards.extend(reward.to_ne_bytes());
                let flags = if outcome == Some(Outcome::Truncated) { &mut truncated } else { &mut terminated };
                flags[index] = u8::from(outcome.is_some());
            }
            Ok::<_, String>(())
        });
        played.map_err(errors::rejected)?;
        Ok((PyBytes::new(py, &rewards), PyBytes::new(py, &terminated), PyBytes::new(py, &truncated)))
    }

    /// Returns the observation of the player to move in each game, float32 `[N, C, H, W]`.
    #[pyo3(name = "_observations")]
    fn observations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let Self { game, episodes } = self;
        let (rules, len) = (&*game.rules, game.rules.spec().observation.len());
        arrays::floats(py, episodes.len(), len, |index, planes| rules.observe(&episodes[index].at, planes))
    }

    /// Returns one byte per game and action `[N, A]`, 1 for a legal action.
    #[pyo3(name = "_legal")]
    fn legal<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let Self { game, episodes } = self;
        let (rules, len) = (&*game.rules, game.rules.spec().actions);
        arrays::bytes(py, episodes.len(), len, |index, mask| write_legal(rules, &episodes[index].at, mask))
    }

    /// Returns the index of the player to move in each game, one byte `[N]`.
    #[pyo3(name = "_to_move")]
    fn to_move<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let Self { game, episodes } = self;
        let to_move = |index: usize| u8::from(game.rules.to_move(&episodes[index].at) == game::Player::Second);
        arrays::bytes(py, episodes.len(), 1, |index, player| player[0] = to_move(index))
    }

    /// Returns the outcome of game `index`, named as by `Position.outcome`; `None` before the end.
    fn outcome(&self, index: i64) -> PyResult<Option<String>> {
        let index = self.index(index)?;
        Ok(self.game.rules.outcome(&self.episodes[index].at).map(outcome_name))
    }
}

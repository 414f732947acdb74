//! Plays evaluation episodes of games with rewards, and computes the mean return with a confidence interval and the
//! mean length.
//!
//! The return of an episode is the plain sum of rewards, without a discount. Start with [`play`].

use std::ops::ControlFlow;

use game::Game;
use serde::{Deserialize, Serialize};

use crate::contestant::Contestant;
use crate::rating::NORMAL_95;

/// One finished episode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpisodeReturn {
    /// Sum of the rewards.
    pub sum: f64,
    /// Number of steps.
    pub steps: usize,
}

/// The statistics of several episodes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Returns {
    /// Number of episodes.
    pub episodes: usize,
    /// Mean return.
    pub mean: f64,
    /// Lower bound of the 95 % confidence interval of the mean.
    pub low: f64,
    /// Upper bound of the 95 % confidence interval of the mean.
    pub high: f64,
    /// Mean number of steps.
    pub length: f64,
}

/// The reason why an evaluation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The network failed.
    #[error("evaluate positions")]
    Network(#[from] inference::Error),
    /// The rules returned a reward that is not finite.
    #[error("{game} returned the reward {reward} in step {step} of the episode with seed {seed}")]
    Reward {
        /// Name of the game.
        game: String,
        /// The reward: NaN or infinite.
        reward: f32,
        /// Number of steps before the reward.
        step: usize,
        /// Seed of the episode.
        seed: u64,
    },
    /// The environments cannot be started.
    #[error("start the environments of {game}")]
    Start {
        /// Name of the game.
        game: String,
        /// Error that occurred at the start.
        source: bridge::Error,
    },
    /// The environments have failed.
    #[error(transparent)]
    Environments(#[from] game::EnvironmentsError),
    /// The environments lost an episode at every attempt.
    #[error("{game} failed in the evaluation episode with seed {seed} {tries} times")]
    Lost {
        /// Name of the game.
        game: String,
        /// Seed of the episode.
        seed: u64,
        /// Number of attempts.
        tries: u32,
    },
}

/// Returns the seeds of `count` evaluation episodes. Self-play never uses them, whatever the run's seed. Equal
/// arguments give equal seeds, so that the versions of a run are compared on the same episodes.
pub fn seeds(seed: u64, count: usize) -> impl Iterator<Item = u64> {
    (0..count as u64).map(move |index| selfplay::evaluation_seed(seed, index))
}

/// Plays one episode per seed with the contestant's actions, all concurrently; returns one result per seed.
///
/// `pause` is called after every step of all episodes: it may sleep, or stop the evaluation, which then has no result.
///
/// # Errors
/// The network fails, or a reward is not finite.
pub fn play<G: Game>(
    game: &G,
    contestant: &mut dyn Contestant<G>,
    seeds: impl IntoIterator<Item = u64>,
    pause: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Option<Vec<EpisodeReturn>>, Error> {
    struct Running<P> {
        index: usize,
        seed: u64,
        position: P,
    }
    let start = |(index, seed): (usize, u64)| Running { index, seed, position: game.start_from(seed) };
    let mut running: Vec<Running<G::Position>> = seeds.into_iter().enumerate().map(start).collect();
    let mut episodes = vec![EpisodeReturn { sum: 0.0, steps: 0 }; running.len()];
    while !running.is_empty() {
        let positions: Vec<G::Position> = running.iter().map(|episode| episode.position.clone()).collect();
        for (Running { index, seed, position }, action) in running.iter_mut().zip(contestant.choose(game, &positions)?)
        {
            let (reward, episode) = (game.play(position, action), &mut episodes[*index]);
            if !reward.is_finite() {
                let game = game.spec().name.clone();
                return Err(Error::Reward { game, reward, step: episode.steps, seed: *seed });
            }
            episode.sum += f64::from(reward);
            episode.steps += 1;
        }
        running.retain(|episode| game.outcome(&episode.position).is_none());
        if pause().is_break() {
            return Ok(None);
        }
    }
    Ok(Some(episodes))
}

impl Returns {
    /// Computes the statistics of at least two episodes, with a confidence interval from Student's distribution.
    ///
    /// # Panics
    /// There are fewer than two episodes, which have no interval.
    #[must_use]
    pub fn of(episodes: &[EpisodeReturn]) -> Self {
        assert!(episodes.len() >= 2, "an interval needs two episodes");
        let count = episodes.len() as f64;
        let mean = episodes.iter().map(|episode| episode.sum).sum::<f64>() / count;
        let squares: f64 = episodes.iter().map(|episode| (episode.sum - mean).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        let margin = student_quantile(count - 1.0) * error;
        let length = episodes.iter().map(|episode| episode.steps as f64).sum::<f64>() / count;
        Self { episodes: episodes.len(), mean, low: mean - margin, high: mean + margin, length }
    }
}

/// Returns the 97.5 % quantile of Student's distribution with ν degrees of freedom: exact for ν up to 2, else by the
/// expansion in 1/ν of Fisher and Cornish (1960), with an error below 1 % for ν = 3 that vanishes as ν grows.
fn student_quantile(freedom: f64) -> f64 {
    if freedom < 1.5 {
        return 12.706_204_736;
    }
    if freedom < 2.5 {
        return 4.302_652_730;
    }
    let z = NORMAL_95;
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use evaluator_doubles::{Chain, FORWARD, Place};
    use game::Action;

    use super::*;

    /// Moves forward in every position.
    struct Forward;

    impl Contestant<Chain> for Forward {
        fn choose(&mut self, _: &Chain, positions: &[Place]) -> Result<Vec<Action>, inference::Error> {
            Ok(vec![FORWARD; positions.len()])
        }
    }

    fn go_on() -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    #[test]
    fn the_return_of_an_episode_is_the_sum_of_its_rewards() {
        let chain = Chain::default();
        let episodes = play(&chain, &mut Forward, [4, 9, 2], &mut go_on).unwrap().unwrap();
        let expected = [5.0, 3.0, 3.0].map(|prize| EpisodeReturn { sum: prize - 0.5 * 2.0, steps: 3 });
        assert_eq!(episodes, expected);
    }

    #[test]
    fn an_evaluation_that_is_stopped_has_no_result() {
        let stopped = play(&Chain::default(), &mut Forward, [1], &mut || ControlFlow::Break(())).unwrap();
        assert_eq!(stopped, None);
    }

    #[test]
    fn a_reward_that_is_not_finite_is_an_error_that_names_the_step() {
        let error = play(&Chain::broken(), &mut Forward, [3], &mut go_on).unwrap_err();
        assert_eq!(error.to_string(), "chain returned the reward NaN in step 2 of the episode with seed 3");
    }

    /// The values come from published tables.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, expected) in
            [(1.0, 12.706), (2.0, 4.303), (3.0, 3.182), (4.0, 2.776), (9.0, 2.262), (31.0, 2.040), (99.0, 1.984)]
        {
            let quantile = student_quantile(freedom);
            assert!((quantile / expected - 1.0).abs() < 0.01, "{freedom}: {quantile}");
        }
        assert!((student_quantile(99.0) - 1.984_217).abs() < 1e-5);
    }

    #[test]
    fn the_interval_is_that_of_a_worked_example() {
        // Mean 6, standard deviation √(40 / 4) = 3.1623, standard error 1.4142, and 2.776 for 4 degrees of freedom.
        let episodes = [2.0, 4.0, 6.0, 8.0, 10.0].map(|sum| EpisodeReturn { sum, steps: 7 });
        let Returns { episodes, mean, low, high, length } = Returns::of(&episodes);
        assert_eq!((episodes, mean, length), (5, 6.0, 7.0));
        assert!((high - 6.0 - 3.926).abs() < 0.02 && (6.0 - low - 3.926).abs() < 0.02, "{low} {high}");
    }

    #[test]
    fn equal_returns_have_an_interval_of_a_point() {
        let Returns { mean, low, high, .. } = Returns::of(&[EpisodeReturn { sum: 500.0, steps: 500 }; 32]);
        assert_eq!((low, mean, high), (500.0, 500.0, 500.0));
    }
}

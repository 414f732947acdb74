//! A trial episode that finds the faults of an environment before a run is started with it.

use std::time::{Duration, Instant};

use game::{Outcome, Taken, mix};

use super::{Bridge, Reply};
use crate::Error;
use crate::message::{End, Order};

/// Maximum number of steps in a trial: enough for episodes of most environments.
const STEPS_MAX: usize = 1_000;
/// Time after which a trial takes no further step.
const TIME_MAX: Duration = Duration::from_secs(3);
/// Seed of the episode and of the actions.
const SEED: u64 = 1;

/// The course of an episode with random actions.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Number of steps taken.
    pub steps: usize,
    /// Sum of the rewards.
    pub reward: f64,
    /// The outcome; `None` if the trial stopped before the end of the episode.
    pub outcome: Option<Outcome>,
    /// The last line printed by the process.
    pub printed: Option<String>,
}

impl Bridge {
    /// Plays an episode with random actions in the first environment, to the end, or for a thousand steps or a few
    /// seconds. No environment may have an episode in progress before, and none has one afterwards.
    ///
    /// # Errors
    /// [`Error::Failed`] with the first fault; the bridge is then of no further use.
    pub fn try_episode(&mut self) -> Result<Trial, Error> {
        let begin = Instant::now();
        self.perform(Order::Begin { seed: SEED }, || format!("reset(seed={SEED})"))?;
        self.episodes[0].begin();
        let mut trial = Trial { steps: 0, reward: 0.0, outcome: None, printed: None };
        while trial.outcome.is_none() && trial.steps < STEPS_MAX && begin.elapsed() < TIME_MAX {
            trial.steps += 1;
            let action = mix(SEED ^ trial.steps as u64) % self.spec.actions as u64;
            let action = u16::try_from(action).expect("a description has at most 65,535 actions");
            let (reward, end) = self.perform(Order::Step { action }, || format!("step {}", trial.steps))?;
            let Taken::Step { outcome, .. } = self.arrive(0, reward, end) else { break };
            (trial.reward, trial.outcome) = (trial.reward + f64::from(reward), outcome);
        }
        self.episodes[0].end();
        trial.printed = self.workers[0].last_line();
        Ok(trial)
    }

    /// Performs one call on the first environment.
    fn perform(&mut self, order: Order, moment: impl FnOnce() -> String) -> Result<(f32, Option<End>), Error> {
        self.enlist(0, 0, order);
        self.exchange(1)?;
        match self.replies[0] {
            Reply::Arrived { reward, end } => Ok((reward, end)),
            Reply::Missing => Err(self.settings.failed(format!("failed in {}: {}", moment(), self.last_failure))),
        }
    }
}

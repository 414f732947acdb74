use crate::{Action, Outcome, Player, Spec};

/// Runs N episodes of one environment that advance together: a single call advances all episodes of self-play.
///
/// An environment is identified by an index below [`len`](Self::len). It is idle until [`begin`](Self::begin) starts
/// an episode, and idle again once a step has ended or lost the episode. Episodes never start by themselves, so the
/// observation after the last step, from which a truncated return bootstraps, can still be read. The implementations
/// are [`RulesEnvironments`](crate::RulesEnvironments), which cannot lose episodes, and the bridge to environments in
/// Python, where processes may die, hang or send rejected values.
#[allow(clippy::len_without_is_empty, reason = "there is at least one environment")]
pub trait Environments: Send {
    /// Returns the constants of the environment.
    fn spec(&self) -> &Spec;

    /// Returns N, the number of environments.
    fn len(&self) -> usize;

    /// Starts an episode in each idle environment of `starts`, and replaces `started` with the results, in the same
    /// order. Blocks while no episode is under way and none can start, so that a caller may retry at once.
    ///
    /// # Errors
    /// The environments cannot continue.
    ///
    /// # Panics
    /// If an environment does not exist, occurs twice or has an episode under way.
    fn begin(&mut self, starts: &[Start], started: &mut Vec<Started>) -> Result<(), EnvironmentsError>;

    /// Takes one action in each environment of `plays`, and replaces `taken` with the results, in the same order.
    ///
    /// # Errors
    /// The environments cannot continue.
    ///
    /// # Panics
    /// If an environment does not exist, occurs twice or has no episode under way.
    fn step(&mut self, plays: &[Play], taken: &mut Vec<Taken>) -> Result<(), EnvironmentsError>;

    /// Writes the observation `[C, H, W]` of the player to move into `values`, overwriting all of it. After the
    /// episode, this is the observation of the last position; values are unspecified if the episode was lost or never
    /// started.
    ///
    /// # Panics
    /// If the environment does not exist, or `values` does not have the length of an observation.
    fn observe(&self, environment: usize, values: &mut [f32]);

    /// Returns the part of the observation to store for training; `None` if the rules recompute observations from the
    /// seed and the actions.
    fn frame(&self, environment: usize) -> Option<Frame<'_>> {
        let _ = environment;
        None
    }

    /// Returns a picture for spectators of an episode under way, a PNG in base64; `None` if the environment draws none,
    /// or none at this time. May take as long as a step.
    fn picture(&mut self, environment: usize) -> Option<String> {
        let _ = environment;
        None
    }

    /// Replaces `actions` with the legal actions in ascending order; empties it if no episode is under way.
    fn legal_actions(&self, environment: usize, actions: &mut Vec<Action>);

    /// Returns the player who chooses the next action. Unspecified once the episode is over.
    fn to_move(&self, environment: usize) -> Player;

    /// Returns true if the action is known to end the episode under way. Environments that would have to take the
    /// action to find out return false.
    fn would_end(&self, environment: usize, action: Action) -> bool {
        let _ = (environment, action);
        false
    }

    /// Returns the seed to store with an episode that started from `seed`: 0 if seed 0 starts the same episode.
    fn stored_seed(&self, seed: u64) -> u64 {
        seed
    }

    /// Returns the counts of losses since the start.
    fn losses(&self) -> Losses {
        Losses::default()
    }
}

/// Counts of losses in environments outside this process since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Processes that died, broke the protocol or did not start.
    pub processes_died: u64,
    /// Processes killed for not answering in time.
    pub processes_hung: u64,
    /// Failures of single environments: exceptions, NaN, wrong shapes.
    pub environments_failed: u64,
    /// Episodes that were under way in failed processes or environments.
    pub episodes: u64,
}

/// A request to start an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Index of the environment.
    pub environment: usize,
    /// Seed, which determines all randomness of the episode.
    pub seed: u64,
}

/// The result of a [`Start`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// The episode has started.
    Now,
    /// The environment cannot start an episode now: the process is being replaced, or the first observation was
    /// rejected. It remains idle; a later start may succeed.
    NotYet,
}

/// A request for one action in an episode under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Play {
    /// Index of the environment.
    pub environment: usize,
    /// Legal action.
    pub action: Action,
}

/// The result of a [`Play`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Taken {
    /// The action was taken.
    Step {
        /// Reward for the player who took the action; finite.
        reward: f32,
        /// Outcome if the episode is over.
        outcome: Option<Outcome>,
    },
    /// The episode is lost with all steps: the process died or hung, or a value was rejected.
    Lost,
}

/// The newest part of an observation as sent by the environment: with frame stacking, a single frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Frame<'a> {
    /// Values from 0 to 255; [`observe`](Environments::observe) scales them to `[0, 1]`.
    Bytes(&'a [u8]),
    /// Finite values, which [`observe`](Environments::observe) leaves unchanged.
    Floats(&'a [f32]),
}

/// The error of environments that cannot continue.
#[derive(Debug, thiserror::Error)]
#[error("environment {environment} failed")]
pub struct EnvironmentsError {
    /// Name of the environment.
    pub environment: String,
    /// The cause.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

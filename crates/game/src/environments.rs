use crate::{Action, Outcome, Player, Spec};

/// Runs N episodes of one environment that advance together; self-play advances all of them by one call.
///
/// An environment is named by its index below [`len`](Self::len). It is idle until [`begin`](Self::begin) starts its
/// episode, and idle again once a step has ended or lost the episode. Nothing begins by itself, so the observation
/// after the last step can still be read, from which a truncated return bootstraps. The implementations are
/// [`RulesEnvironments`](crate::RulesEnvironments), whose episodes cannot be lost, and the bridge to environments in
/// Python, whose processes may die, hang or send values that are refused.
#[allow(clippy::len_without_is_empty, reason = "there is at least one environment")]
pub trait Environments: Send {
    /// Returns the constants of the environment.
    fn spec(&self) -> &Spec;

    /// Returns N, the number of environments.
    fn len(&self) -> usize;

    /// Begins an episode in each idle environment of `starts`, and replaces `started` with the results, in their order.
    /// Blocks while no episode is under way and none can begin, so that a caller may begin again at once.
    ///
    /// # Errors
    /// The environments cannot go on.
    ///
    /// # Panics
    /// If an environment does not exist, occurs twice or has an episode under way.
    fn begin(&mut self, starts: &[Start], started: &mut Vec<Started>) -> Result<(), EnvironmentsError>;

    /// Takes one action in each environment of `plays`, and replaces `taken` with the results, in their order.
    ///
    /// # Errors
    /// The environments cannot go on.
    ///
    /// # Panics
    /// If an environment does not exist, occurs twice or has no episode under way.
    fn step(&mut self, plays: &[Play], taken: &mut Vec<Taken>) -> Result<(), EnvironmentsError>;

    /// Writes the observation `[C, H, W]` of the player to move into `values`, overwriting all of it: that of the last
    /// position once the episode has ended, unspecified values if it was lost or never began.
    ///
    /// # Panics
    /// If the environment does not exist or `values` is not of the length of an observation.
    fn observe(&self, environment: usize, values: &mut [f32]);

    /// Returns what has to be stored of the observation, so that it can be trained on; `None` if the rules recompute
    /// it from the seed and the actions.
    fn frame(&self, environment: usize) -> Option<Frame<'_>> {
        let _ = environment;
        None
    }

    /// Replaces `actions` with the legal actions in ascending order; empties it if no episode is under way.
    fn legal_actions(&self, environment: usize, actions: &mut Vec<Action>);

    /// Returns the player who chooses the next action. Unspecified once the episode is over.
    fn to_move(&self, environment: usize) -> Player;

    /// Returns true if the action is known to end the episode under way. Environments that cannot find out without
    /// taking it return false.
    fn would_end(&self, environment: usize, action: Action) -> bool {
        let _ = (environment, action);
        false
    }

    /// Returns the seed to store with an episode that began from `seed`: 0 if seed 0 begins the same episode.
    fn stored_seed(&self, seed: u64) -> u64 {
        seed
    }

    /// Returns the counts of what was lost since the start.
    fn losses(&self) -> Losses {
        Losses::default()
    }
}

/// Counts what environments outside this process lost since their start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// The processes that died, broke the protocol or did not start.
    pub processes_died: u64,
    /// The processes that were killed because they did not answer in time.
    pub processes_hung: u64,
    /// The failures of single environments: exceptions, NaN, wrong shapes.
    pub environments_failed: u64,
    /// The episodes that were under way in either.
    pub episodes: u64,
}

/// Requests the begin of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The index of the environment.
    pub environment: usize,
    /// The seed, from which all randomness of the episode follows.
    pub seed: u64,
}

/// The result of a [`Start`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// The episode has begun.
    Now,
    /// The environment cannot begin at the moment, because its process is being replaced or its first observation was
    /// refused. It remains idle; a later start may succeed.
    NotYet,
}

/// Requests one action of an episode under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Play {
    /// The index of the environment.
    pub environment: usize,
    /// The action; it is legal.
    pub action: Action,
}

/// The result of a [`Play`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Taken {
    /// The action was taken.
    Step {
        /// The reward of the player who took the action; finite.
        reward: f32,
        /// The outcome if the episode is over.
        outcome: Option<Outcome>,
    },
    /// The episode is lost with all its steps: its process died or hung, or a value was refused.
    Lost,
}

/// The newest part of an observation as its environment sent it: with frame stacking a single frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Frame<'a> {
    /// Values from 0 to 255, of which [`observe`](Environments::observe) makes `[0, 1]`.
    Bytes(&'a [u8]),
    /// Finite values, which [`observe`](Environments::observe) leaves unchanged.
    Floats(&'a [f32]),
}

/// The error of environments that cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("the environments {environment} cannot go on")]
pub struct EnvironmentsError {
    /// The name of the environment.
    pub environment: String,
    /// The reason.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

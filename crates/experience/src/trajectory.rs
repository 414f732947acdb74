use game::{Action, Outcome};
use weights::WeightsVersion;

/// Which trajectory: unique over all actors and all their restarts.
///
/// The triple makes inserts idempotent: a retry carries the same id and counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrajectoryId {
    /// The actor, stable over restarts.
    pub actor: u64,
    /// Which life of that actor: grows with every start.
    pub epoch: u64,
    /// Counts the trajectories of one epoch from zero.
    pub sequence: u64,
}

impl std::fmt::Display for TrajectoryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.actor, self.epoch, self.sequence)
    }
}

/// Every step of one episode, with what the search concluded and who made it.
#[derive(Debug, Clone, PartialEq)]
pub struct Trajectory {
    /// Who made it, and which one it is.
    pub id: TrajectoryId,
    /// The name of the game, as in its spec.
    pub game: String,
    /// The steps in order, at least one.
    pub steps: Vec<Step>,
    /// How the episode ended.
    pub outcome: Outcome,
}

/// One move of an episode.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What was played.
    pub action: Action,
    /// The reward of the player who played it; 0 in games scored by their outcome.
    pub reward: f32,
    /// How the action was chosen, and so what may be learnt from it.
    pub kind: StepKind,
    /// The weights version that searched this step.
    pub weights_version: WeightsVersion,
}

/// How a step's action was chosen.
#[derive(Debug, Clone, PartialEq)]
pub enum StepKind {
    /// By a full search: its search policy and value are training targets.
    Full {
        /// The search policy, ascending by action, zero entries left out; sums to one.
        policy: Vec<ActionProbability>,
        /// What the search policy expects for the player to move, in `[-1, 1]` (times the reward scale in games with
        /// rewards).
        value: f32,
    },
    /// By a cheap search (playout cap randomisation): its value may be used, its policy may not.
    Fast {
        /// What the search policy expects for the player to move.
        value: f32,
    },
    /// At random, to vary openings: nothing is learnt from it.
    Opening,
}

/// One entry of a sparse search policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActionProbability {
    /// The action.
    pub action: Action,
    /// Its probability, above zero.
    pub probability: f32,
}

/// Bounds that a trajectory from outside must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most steps.
    pub steps_max: usize,
    /// A: actions are below it.
    pub actions: usize,
}

/// Why a trajectory is refused: the field and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct Invalid {
    /// The field, with its index: `steps[3].policy`.
    pub field: String,
    /// What is wrong.
    pub reason: String,
}

impl Trajectory {
    /// Checks everything that can be checked without the rules: bounds, finite numbers, policies that sum to one.
    ///
    /// # Errors
    /// [`Invalid`] names the first field that breaks a bound.
    pub fn validate(&self, limits: Limits) -> Result<(), Invalid> {
        let invalid = |field: String, reason: String| Err(Invalid { field, reason });
        if self.steps.is_empty() {
            return invalid("steps".into(), "is empty".into());
        }
        if self.steps.len() > limits.steps_max {
            let reason = format!("has {} steps, the limit is {}", self.steps.len(), limits.steps_max);
            return invalid("steps".into(), reason);
        }
        self.steps.iter().enumerate().try_for_each(|(ply, step)| step.validate(ply, limits))
    }

    /// The actions in order.
    pub fn actions(&self) -> impl Iterator<Item = Action> + '_ {
        self.steps.iter().map(|step| step.action)
    }

    /// The plies whose search policy is a training target, ascending.
    pub fn full_plies(&self) -> impl Iterator<Item = usize> + '_ {
        self.steps.iter().enumerate().filter(|(_, step)| matches!(step.kind, StepKind::Full { .. })).map(|(ply, _)| ply)
    }
}

impl Step {
    fn validate(&self, ply: usize, limits: Limits) -> Result<(), Invalid> {
        let invalid = |field: &str, reason: String| Err(Invalid { field: format!("steps[{ply}].{field}"), reason });
        if self.action.index() >= limits.actions {
            return invalid("action", format!("{} is not below {}", self.action.0, limits.actions));
        }
        if !self.reward.is_finite() {
            return invalid("reward", "is not finite".into());
        }
        let (policy, value) = match &self.kind {
            StepKind::Full { policy, value } => (Some(policy), Some(value)),
            StepKind::Fast { value } => (None, Some(value)),
            StepKind::Opening => (None, None),
        };
        if value.is_some_and(|value| !value.is_finite()) {
            return invalid("value", "is not finite".into());
        }
        let Some(policy) = policy else { return Ok(()) };
        if let Some(entry) = policy.iter().find(|entry| entry.action.index() >= limits.actions) {
            return invalid("policy", format!("{} is not below {}", entry.action.0, limits.actions));
        }
        ActionProbability::check(policy).or_else(|reason| invalid("policy", reason))
    }
}

impl ActionProbability {
    /// Whoever makes a policy divides in f32: over a few thousand entries its sum stays well inside.
    const SUM_TOLERANCE: f64 = 1e-3;

    /// Whether `policy` is a distribution: ascending by action, every probability above zero, their sum one.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn check(policy: &[Self]) -> Result<(), String> {
        if policy.is_empty() {
            return Err("is empty".to_owned());
        }
        if !policy.is_sorted_by(|before, after| before.action < after.action) {
            return Err("is not ascending by action".to_owned());
        }
        let probabilities = || policy.iter().map(|entry| f64::from(entry.probability));
        // Written so that NaN is no probability.
        let is_probability = |p: f64| p > 0.0 && p <= 1.0 + Self::SUM_TOLERANCE;
        if let Some(index) = probabilities().position(|p| !is_probability(p)) {
            return Err(format!("{} is not a probability", policy[index].probability));
        }
        let sum: f64 = probabilities().sum();
        if (sum - 1.0).abs() > Self::SUM_TOLERANCE { Err(format!("sums to {sum}")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(probabilities: &[(u16, f32)]) -> StepKind {
        let policy = probabilities
            .iter()
            .map(|&(action, probability)| ActionProbability { action: Action(action), probability })
            .collect();
        StepKind::Full { policy, value: 0.25 }
    }

    fn check(kind: StepKind, expected: &str) {
        let step = Step { action: Action(1), reward: 0.0, kind, weights_version: WeightsVersion(3) };
        let id = TrajectoryId { actor: 1, epoch: 2, sequence: 3 };
        let trajectory = Trajectory { id, game: "tic_tac_toe".into(), steps: vec![step], outcome: Outcome::Draw };
        let result = trajectory.validate(Limits { steps_max: 9, actions: 9 });
        assert_eq!(
            result.map_err(|invalid| invalid.to_string()),
            if expected.is_empty() { Ok(()) } else { Err(expected.into()) }
        );
    }

    #[test]
    fn a_policy_that_sums_to_one_is_accepted() {
        check(full(&[(0, 0.25), (8, 0.75)]), "");
    }

    #[test]
    fn a_step_without_a_search_needs_no_policy() {
        check(StepKind::Opening, "");
    }

    #[test]
    fn a_nan_is_refused_by_name() {
        check(StepKind::Fast { value: f32::NAN }, "steps[0].value: is not finite");
        check(full(&[(0, f32::NAN)]), "steps[0].policy: NaN is not a probability");
    }

    #[test]
    fn a_policy_must_sum_to_one() {
        check(full(&[(0, 0.25), (1, 0.25)]), "steps[0].policy: sums to 0.5");
        check(full(&[]), "steps[0].policy: is empty");
    }

    #[test]
    fn a_policy_lists_each_action_once_and_below_the_number_of_actions() {
        check(full(&[(1, 0.5), (1, 0.5)]), "steps[0].policy: is not ascending by action");
        check(full(&[(9, 1.0)]), "steps[0].policy: 9 is not below 9");
    }
}

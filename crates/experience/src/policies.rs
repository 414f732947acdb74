use crate::{ActionProbability, Step, StepKind};

/// Maximum bytes of a policy entry in a trajectory: an action and a probability.
const ENTRY_BYTES: usize = size_of::<u16>() + size_of::<f32>();

/// Maximum bytes of all search policies in an episode: half of the largest message. The other half is for observations
/// and the other columns.
pub const POLICIES_BYTES_MAX: usize = 8 << 20;

/// Maximum entries in these bytes: for 1,000 steps, 1,398 actions each.
pub const POLICY_ENTRIES_MAX: usize = POLICIES_BYTES_MAX / ENTRY_BYTES;

/// Shortens the search policies of an episode if they have more than [`POLICY_ENTRIES_MAX`] entries together, so that
/// the episode can be sent and stored. Each policy keeps the most probable entries, renormalised; the number kept fills
/// half of the space, which leaves room for as many steps again. Returns the total number of entries.
pub fn bound_policies(steps: &mut [Step]) -> usize {
    let entries = |steps: &[Step]| steps.iter().map(|step| step.kind.policy().len()).sum();
    if entries(steps) > POLICY_ENTRIES_MAX {
        let most = (POLICY_ENTRIES_MAX / 2 / steps.len()).max(1);
        for step in &mut *steps {
            if let StepKind::Full { policy, .. } = &mut step.kind {
                keep_most_probable(policy, most);
            }
        }
    }
    entries(steps)
}

fn keep_most_probable(policy: &mut Vec<ActionProbability>, most: usize) {
    if policy.len() <= most {
        return;
    }
    policy.select_nth_unstable_by(most, |a, b| b.probability.total_cmp(&a.probability));
    policy.truncate(most);
    policy.shrink_to_fit();
    policy.sort_unstable_by_key(|entry| entry.action);
    let sum: f64 = policy.iter().map(|entry| f64::from(entry.probability)).sum();
    for entry in policy {
        entry.probability = (f64::from(entry.probability) / sum) as f32;
    }
}

#[cfg(test)]
mod tests {
    use game::{Action, Outcome};
    use weights::WeightsVersion;

    use super::*;
    use crate::{Trajectory, TrajectoryId};

    /// A searched step with a policy that prefers high actions.
    fn searched(actions: u16) -> Step {
        let sum: f32 = (1..=actions).map(f32::from).sum();
        let entry =
            |action: u16| ActionProbability { action: Action(action), probability: f32::from(action + 1) / sum };
        let kind = StepKind::Full { policy: (0..actions).map(entry).collect(), value: 0.5 };
        Step { action: Action(3), reward: 0.0, kind, weights_version: WeightsVersion(1) }
    }

    #[test]
    fn an_episode_of_the_most_actions_keeps_the_most_probable_of_each_step_and_fits_half_a_message() {
        let mut steps = vec![searched(u16::MAX); 40];
        assert!(steps.len() * usize::from(u16::MAX) > POLICY_ENTRIES_MAX);
        let entries = bound_policies(&mut steps);
        let policy = steps[7].kind.policy();
        assert_eq!((entries, policy.len()), (40 * policy.len(), POLICY_ENTRIES_MAX / 2 / 40));
        let kept = policy.iter().map(|entry| entry.action.index());
        assert!(kept.eq(usize::from(u16::MAX) - policy.len()..u16::MAX.into()));
        let sum: f64 = policy.iter().map(|entry| f64::from(entry.probability)).sum();
        assert!((sum - 1.0).abs() < 1e-4, "{sum}");
        let id = TrajectoryId { actor: 1, epoch: 1, sequence: 0 };
        let bytes = Trajectory::of(id, "many", &steps, Outcome::Draw).unwrap().columns().len();
        assert!(bytes < POLICIES_BYTES_MAX, "{bytes}");
    }

    #[test]
    fn policies_with_space_for_all_entries_stay_as_they_are() {
        let mut steps = vec![searched(5_000); 100];
        steps.push(Step { kind: StepKind::Opening, ..searched(1) });
        let before = steps.clone();
        assert_eq!(bound_policies(&mut steps), 500_000);
        assert_eq!(steps, before);
    }
}

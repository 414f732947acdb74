use proptest::prelude::*;

use super::*;
use crate::{Limits, Step};

/// Any bits: rewards of −0 and numbers that are not finite are kept as they are.
fn number() -> impl Strategy<Value = f32> {
    prop_oneof![Just(0.0), any::<u32>().prop_map(f32::from_bits)]
}

fn entry(actions: u16) -> impl Strategy<Value = ActionProbability> {
    (0..=actions, number()).prop_map(|(action, probability)| ActionProbability { action: Action(action), probability })
}

fn kind(actions: u16) -> impl Strategy<Value = StepKind> {
    let policy = prop_oneof![
        9 => prop::collection::vec(entry(actions), 0..8),
        // More entries than fit one byte of a kind.
        1 => prop::collection::vec(entry(actions), 120..300),
    ];
    // Most in the order of valid ones: each action once, ascending.
    let policy = (policy, prop::bool::weighted(0.98)).prop_map(|(mut policy, ascending)| {
        if ascending {
            policy.sort_by_key(|entry| entry.action);
            policy.dedup_by_key(|entry| entry.action);
        }
        policy
    });
    prop_oneof![
        Just(StepKind::Opening),
        number().prop_map(|value| StepKind::Fast { value }),
        (policy, number()).prop_map(|(policy, value)| StepKind::Full { policy, value }),
    ]
}

fn steps(actions: u16, rewards: bool) -> impl Strategy<Value = Vec<Step>> {
    // Few versions, so that they come in runs.
    let version = prop_oneof![9 => 0..3_u64, 1 => any::<u64>()].prop_map(WeightsVersion);
    let step =
        (0..=actions, number(), kind(actions), version).prop_map(move |(action, reward, kind, weights_version)| Step {
            action: Action(action),
            reward: if rewards { reward } else { 0.0 },
            kind,
            weights_version,
        });
    prop::collection::vec(step, 0..20)
}

/// Any trajectory that can be written down, most of them invalid.
fn trajectory() -> impl Strategy<Value = Trajectory> {
    let outcome = prop_oneof![
        Just(Outcome::Win(game::Player::First)),
        Just(Outcome::Win(game::Player::Second)),
        Just(Outcome::Draw),
        Just(Outcome::Finished),
    ];
    let actions = prop_oneof![Just(6_u16), Just(255), Just(256), Just(u16::MAX)];
    let steps = (actions, any::<bool>()).prop_flat_map(|(actions, rewards)| steps(actions, rewards));
    (any::<[u64; 3]>(), "\\PC{0,12}", steps, outcome).prop_map(|([actor, epoch, sequence], game, steps, outcome)| {
        Trajectory { id: TrajectoryId { actor, epoch, sequence }, game, steps, outcome }
    })
}

/// Actions, and probabilities by their bits, which compare equal only if all of them do.
type PolicyBits = Vec<(u16, u32)>;

fn policy_bits(policy: &[ActionProbability]) -> PolicyBits {
    policy.iter().map(|entry| (entry.action.0, entry.probability.to_bits())).collect()
}

fn step_bits(step: &Step) -> (u16, u32, Option<u32>, Option<PolicyBits>, u64) {
    let Step { action, reward, kind, weights_version } = step;
    let policy = policy(kind).map(policy_bits);
    (action.0, reward.to_bits(), value(kind).map(f32::to_bits), policy, weights_version.0)
}

fn target_bits(target: &Target) -> (PolicyBits, u32, u32, u64) {
    let Target { policy, value, reward, weights_version } = target;
    (policy_bits(policy), value.to_bits(), reward.to_bits(), weights_version.0)
}

proptest! {
    #[test]
    fn any_trajectory_comes_back_bit_for_bit(trajectory in trajectory()) {
        let packed = PackedTrajectory::pack(&trajectory);
        let Trajectory { id, game, steps, outcome } = packed.unpack();
        prop_assert_eq!((id, &game, outcome), (trajectory.id, &trajectory.game, trajectory.outcome));
        prop_assert_eq!(steps.len(), trajectory.steps.len());
        for (back, step) in steps.iter().zip(&trajectory.steps) {
            prop_assert_eq!(step_bits(back), step_bits(step));
        }
    }

    #[test]
    fn every_segment_is_the_one_cut_from_the_trajectory(trajectory in trajectory()) {
        let packed = PackedTrajectory::pack(&trajectory);
        let plies = trajectory.steps.len();
        for (ply, unroll_steps) in (0..plies + 2).flat_map(|ply| (0..=plies).chain([usize::MAX]).map(move |k| (ply, k))) {
            let (segment, cut) = (packed.segment(ply, unroll_steps), Segment::cut(&trajectory, ply, unroll_steps));
            prop_assert_eq!(segment.is_some(), cut.is_some());
            let (Some(segment), Some(cut)) = (segment, cut) else { continue };
            let bits = |segment: &Segment| segment.targets.iter().map(target_bits).collect::<Vec<_>>();
            prop_assert_eq!(bits(&segment), bits(&cut));
            let rest = |segment: Segment| Segment { targets: Vec::new(), ..segment };
            prop_assert_eq!(rest(segment), rest(cut));
        }
    }

    #[test]
    fn what_is_asked_without_unpacking_is_the_trajectorys(trajectory in trajectory()) {
        let packed = PackedTrajectory::pack(&trajectory);
        prop_assert_eq!(packed.id(), trajectory.id);
        prop_assert_eq!(packed.game(), &trajectory.game);
        prop_assert_eq!(packed.outcome(), trajectory.outcome);
        prop_assert_eq!(packed.plies(), trajectory.steps.len());
        prop_assert!(packed.actions().eq(trajectory.actions()));
        prop_assert!(packed.full_plies().eq(trajectory.full_plies()));
        prop_assert_eq!(packed.last_weights_version(), trajectory.steps.last().map(|step| step.weights_version));
        prop_assert_eq!(packed.full_steps(), packed.full_plies().count());
        // Past the end too: it guesses, and changes nothing.
        (0..packed.full_steps() + 2).for_each(|item| packed.fetch(item));
    }
}

/// Full steps with policies of `entries` that are valid for games of `actions`.
fn full(plies: usize, entries: u16, action: u16, reward: f32) -> Trajectory {
    let probability = 1.0 / f32::from(entries);
    let policy: Vec<_> = (0..entries).map(|action| ActionProbability { action: Action(action), probability }).collect();
    let kind = StepKind::Full { policy, value: 0.5 };
    let step = Step { action: Action(action), reward, kind, weights_version: WeightsVersion(9) };
    let id = TrajectoryId { actor: 1, epoch: 1, sequence: 0 };
    Trajectory { id, game: "any".into(), steps: vec![step; plies], outcome: Outcome::Draw }
}

/// Bytes that one more step of this kind costs.
fn bytes_per_step(entries: u16, action: u16, reward: f32) -> usize {
    let bytes = |plies| {
        let trajectory = full(plies, entries, action, reward);
        trajectory.validate(Limits { steps_max: 100, actions: 1000 }).unwrap();
        PackedTrajectory::pack(&trajectory).bytes()
    };
    bytes(31) - bytes(30)
}

#[test]
fn a_full_step_costs_six_bytes_and_four_for_each_entry_of_its_policy_and_which_actions_it_has() {
    assert_eq!(bytes_per_step(7, 6, 0.0), 6 + 7 * 4 + 1);
    assert_eq!(bytes_per_step(1, 0, 0.0), 6 + 4 + 1);
    assert_eq!(bytes_per_step(121, 120, 0.0), 6 + 121 * 4 + 16);
}

#[test]
fn actions_above_a_byte_and_rewards_cost_more() {
    assert_eq!(bytes_per_step(7, 256, 0.0), 7 + 7 * 4 + 1);
    assert_eq!(bytes_per_step(7, 6, -0.0), 10 + 7 * 4 + 1);
}

#[test]
fn no_byte_is_left_over() {
    let packed = PackedTrajectory::pack(&full(30, 7, 6, 0.0));
    let name_and_versions = (1 + "any".len()) + 2;
    assert_eq!(packed.bytes(), size_of::<PackedTrajectory>() + 30 * (6 + 7 * 4 + 1) + name_and_versions);
}

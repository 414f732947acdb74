use proptest::prelude::*;

use super::*;
use crate::{ActionProbability, Segment, StepKind, Trajectory, TrajectoryId};

const ID: TrajectoryId = TrajectoryId { actor: 1, epoch: 1, sequence: 0 };

/// Generates any finite number, including −0.
fn number() -> impl Strategy<Value = f32> {
    let finite =
        any::<u32>().prop_map(f32::from_bits).prop_map(|number| if number.is_finite() { number } else { -0.0 });
    prop_oneof![Just(0.0), finite]
}

/// Generates a distribution over some of the actions up to the highest.
fn policy(highest: u16) -> impl Strategy<Value = Vec<ActionProbability>> {
    let counts = prop_oneof![
        9 => prop::collection::btree_map(0..=highest, 1_u16..1000, 1..8),
        // More entries than a kind of one byte can encode.
        1 => prop::collection::btree_map(0..=highest, 1_u16..1000, 1..300),
    ];
    counts.prop_map(|visits| {
        let sum: f32 = visits.values().map(|&count| f32::from(count)).sum();
        let entry = |(action, count)| ActionProbability { action: Action(action), probability: f32::from(count) / sum };
        visits.into_iter().map(entry).collect()
    })
}

fn kind(highest: u16) -> impl Strategy<Value = StepKind> {
    prop_oneof![
        Just(StepKind::Opening),
        number().prop_map(|value| StepKind::Fast { value }),
        (policy(highest), number()).prop_map(|(policy, value)| StepKind::Full { policy, value }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let highest = prop_oneof![Just(6_u16), Just(255), Just(256), Just(u16::MAX)];
    (highest, any::<bool>()).prop_flat_map(|(highest, rewards)| {
        // Few versions, so that they come in runs.
        let version = prop_oneof![9 => 0..3_u64, 1 => any::<u64>()].prop_map(WeightsVersion);
        let step =
            (0..=highest, number(), kind(highest), version).prop_map(move |(action, reward, kind, weights_version)| {
                Step { action: Action(action), reward: if rewards { reward } else { 0.0 }, kind, weights_version }
            });
        prop::collection::vec(step, 1..20)
    })
}

pub(super) fn episode() -> impl Strategy<Value = Episode> {
    let outcomes = [Outcome::Win(Player::First), Outcome::Win(Player::Second), Outcome::Draw, Outcome::Finished];
    let facts = prop_oneof![
        prop::sample::select(outcomes.to_vec()).prop_map(|outcome| (outcome, 0.0)),
        number().prop_map(|value| (Outcome::Truncated, value)),
    ];
    let seed = prop_oneof![Just(0), any::<u64>()];
    (facts, seed).prop_map(|((outcome, truncation_value), seed)| Episode { seed, outcome, truncation_value })
}

/// Adds positions and surprises, or one of them, to the trajectory.
fn described(trajectory: &Trajectory, which: u8, first: u64) -> Trajectory {
    let steps = || 0..trajectory.full_steps() as u64;
    let positions: Vec<u64> = steps().map(|step| first.wrapping_mul(step + 1)).collect();
    let surprises: Vec<f32> = steps().map(|step| step as f32 / 3.0).collect();
    let given = |bit: u8| which & bit != 0;
    let none = (&[][..], &[][..]);
    trajectory
        .with_positions(if given(1) { &positions } else { none.0 }, if given(2) { &surprises } else { none.1 })
        .unwrap()
}

/// All fields of an episode as bits.
fn episode_bits(episode: Episode) -> (u64, Outcome, u32) {
    (episode.seed, episode.outcome, episode.truncation_value.to_bits())
}

fn name() -> impl Strategy<Value = String> {
    "\\PC{1,12}"
}

/// All fields of a step as bits, which are equal only if all fields are bitwise equal.
type StepBits = (u16, u32, Option<u32>, Vec<(u16, u32)>, u64);

fn bits(step: &Step) -> StepBits {
    let policy = step.kind.policy().iter().map(|entry| (entry.action.0, entry.probability.to_bits())).collect();
    let Step { action, reward, kind, weights_version } = step;
    (action.0, reward.to_bits(), kind.value().map(f32::to_bits), policy, weights_version.0)
}

fn all_bits(steps: impl IntoIterator<Item = Step>) -> Vec<StepBits> {
    steps.into_iter().map(|step| bits(&step)).collect()
}

proptest! {
    #[test]
    fn any_trajectory_is_read_back_bit_for_bit(
        steps in steps(), game in name(), episode in episode(), which in 0..4_u8, first in any::<u64>(),
    ) {
        let trajectory = described(&Trajectory::of_episode(ID, &game, &steps, episode).unwrap(), which, first);
        let back = Trajectory::parse(ID, trajectory.columns(), Limits::NONE).unwrap();
        prop_assert_eq!((back.id(), back.game(), back.outcome()), (ID, game.as_str(), episode.outcome));
        prop_assert_eq!(episode_bits(back.episode()), episode_bits(episode));
        prop_assert!(!back.has_observations());
        prop_assert!(back.positions().eq(trajectory.positions()) && back.surprises().eq(trajectory.surprises()));
        prop_assert_eq!(back.positions().len(), if which & 1 == 0 { 0 } else { back.full_steps() });
        prop_assert_eq!(back.surprises().len(), if which & 2 == 0 { 0 } else { back.full_steps() });
        // The layout must agree too, which was computed rather than parsed when the columns were added.
        prop_assert_eq!(episode_bits(trajectory.episode()), episode_bits(episode));
        prop_assert_eq!(all_bits(trajectory.steps()), all_bits(steps.clone()));
        prop_assert_eq!(all_bits(back.steps()), all_bits(steps));
    }

    #[test]
    fn every_segment_holds_the_steps_of_its_trajectory(steps in steps(), episode in episode(), which in 0..4_u8) {
        let trajectory = described(&Trajectory::of_episode(ID, "any", &steps, episode).unwrap(), which, 7);
        let plies = steps.len();
        for (ply, unroll_steps) in (0..plies + 2).flat_map(|ply| (0..=plies).chain([usize::MAX]).map(move |k| (ply, k))) {
            let Some(segment) = trajectory.segment(ply, unroll_steps) else {
                prop_assert!(ply >= plies);
                continue;
            };
            let end = ply.saturating_add(unroll_steps).saturating_add(1).min(plies);
            prop_assert_eq!((segment.trajectory(), segment.ply(), segment.plies()), (ID, ply, plies));
            prop_assert_eq!((segment.outcome(), segment.len()), (episode.outcome, end - ply));
            prop_assert_eq!(episode_bits(segment.episode()), episode_bits(episode));
            prop_assert_eq!(segment.reaches_end(), end == plies);
            prop_assert!(segment.actions().eq(steps[..end].iter().map(|step| step.action)));
            prop_assert_eq!(all_bits(segment.steps()), all_bits(steps[ply..end].to_vec()));
            let back = Segment::parse(ID, segment.columns().clone(), Limits::NONE).unwrap();
            // The layout must agree too, which was computed rather than parsed when the segment was cut.
            prop_assert_eq!(all_bits(back.steps()), all_bits(segment.steps()));
            prop_assert_eq!(episode_bits(back.episode()), episode_bits(episode));
            prop_assert_eq!(back, segment);
        }
    }

    #[test]
    fn the_layout_of_a_part_is_that_of_its_bytes(steps in steps(), episode in episode()) {
        let whole = Columns::of(&steps, "any", episode, None).unwrap();
        for (from, count) in (0..steps.len()).flat_map(|from| (1..=steps.len() - from).map(move |count| (from, count))) {
            let part = whole.part(from, count);
            let parsed = Columns::parse(part.bytes.clone(), Limits::NONE, Extent::Part).unwrap();
            // A part has no name of a game, wherever it would stand.
            let layout = Layout { game_at: 0, ..part.layout };
            prop_assert_eq!(format!("{layout:?}"), format!("{:?}", Layout { game_at: 0, ..parsed.layout }));
        }
    }

    #[test]
    fn fields_read_without_decoding_the_steps_agree_with_the_steps(steps in steps(), episode in episode()) {
        let trajectory = Trajectory::of_episode(ID, "any", &steps, episode).unwrap();
        let full: Vec<usize> = (0..steps.len()).filter(|&ply| !steps[ply].kind.policy().is_empty()).collect();
        prop_assert_eq!(trajectory.plies(), steps.len());
        prop_assert!(trajectory.actions().eq(steps.iter().map(|step| step.action)));
        prop_assert!(trajectory.full_plies().eq(full.iter().copied()));
        prop_assert_eq!(Some(trajectory.last_weights_version()), steps.last().map(|step| step.weights_version));
        prop_assert_eq!(trajectory.full_steps(), full.len());
        // An index past the end is allowed too: the offsets are estimates, and nothing is changed.
        (0..full.len() + 2).for_each(|item| trajectory.fetch(item));
    }

    /// Every accepted buffer is the unique encoding of the content: every byte is validated.
    #[test]
    fn bytes_that_were_changed_are_refused_or_are_the_encoding_of_another_trajectory(
        steps in steps(),
        episode in episode(),
        which in 0..4_u8,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let trajectory = described(&Trajectory::of_episode(ID, "any", &steps, episode).unwrap(), which, 7);
        let mut bytes = trajectory.columns().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len())));
        match Trajectory::parse(ID, &bytes, Limits { steps_max: 64, actions: 1 << 16 }) {
            Ok(read) => {
                let steps: Vec<Step> = read.steps().collect();
                let again = Trajectory::of_episode(ID, read.game(), &steps, read.episode()).unwrap();
                let (positions, surprises): (Vec<_>, Vec<_>) = (read.positions().collect(), read.surprises().collect());
                let again = again.with_positions(&positions, &surprises).unwrap();
                prop_assert_eq!(again.columns(), &bytes);
            }
            Err(invalid) => prop_assert!(!invalid.field.is_empty() && !invalid.reason.is_empty()),
        }
        if let Ok(segment) = Segment::parse(ID, bytes.into(), Limits { steps_max: 64, actions: 1 << 16 }) {
            prop_assert_eq!(segment.steps().count(), segment.len());
        }
    }
}

/// Returns a trajectory of full steps, each with `entries` policy entries.
fn full(plies: usize, entries: u16, action: u16, reward: f32) -> Trajectory {
    let probability = 1.0 / f32::from(entries);
    let policy: Vec<_> = (0..entries).map(|action| ActionProbability { action: Action(action), probability }).collect();
    let kind = StepKind::Full { policy, value: 0.5 };
    let step = Step { action: Action(action), reward, kind, weights_version: WeightsVersion(9) };
    Trajectory::of(ID, "any", &vec![step; plies], Outcome::Draw).unwrap()
}

/// Returns the size of one more step of this kind, in bytes.
fn bytes_per_step(entries: u16, action: u16, reward: f32) -> usize {
    full(31, entries, action, reward).bytes() - full(30, entries, action, reward).bytes()
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
    let trajectory = full(30, 7, 6, 0.0);
    let header = 3 + (1 + "any".len()) + 4 + 1 + 1;
    let versions = 2;
    assert_eq!(trajectory.columns().len(), header + 30 * (6 + 7 * 4 + 1) + versions);
}

/// Returns the columns of a trajectory with one fast step, and one full step with two actions in the policy.
fn example() -> Vec<u8> {
    let policy = [0.25, 0.75].map(|probability| ActionProbability { action: Action(0), probability });
    let policy = vec![policy[0], ActionProbability { action: Action(8), ..policy[1] }];
    let steps = [StepKind::Fast { value: 0.5 }, StepKind::Full { policy, value: -1.0 }].map(|kind| Step {
        action: Action(4),
        reward: 0.0,
        kind,
        weights_version: WeightsVersion(300),
    });
    Trajectory::of(ID, "ttt", &steps, Outcome::Draw).unwrap().columns().to_vec()
}

#[test]
fn the_layout_is_the_documented_one() {
    let mut expected = vec![1, 0, 3, 3, b't', b't', b't', 2, 0, 2, 2, 0];
    expected.extend([1, 3]);
    expected.extend([4, 4]);
    expected.extend([0.5_f32, -1.0].iter().flat_map(|value| value.to_le_bytes()));
    expected.extend([0, 8]);
    expected.extend([0.25_f32, 0.75].iter().flat_map(|probability| probability.to_le_bytes()));
    expected.extend([2, 0xac, 2]);
    assert_eq!(example(), expected);
}

/// Adds an optional column to the example.
fn add(bytes: &mut Vec<u8>, id: u8, column: &[u8]) {
    bytes.splice(11..12, [1, id, u8::try_from(column.len()).unwrap()]);
    bytes.extend(column);
}

/// Makes the example the trajectory of a truncated episode.
fn truncate(bytes: &mut Vec<u8>, value: f32) {
    bytes[2] = 5;
    add(bytes, 5, &value.to_le_bytes());
}

#[test]
fn a_truncated_episode_ends_with_its_truncation_value_and_its_seed() {
    let mut expected = example();
    expected[2] = 5;
    expected.splice(11..12, [2, 5, 4, 6, 8]);
    expected.extend(2.5_f32.to_le_bytes());
    expected.extend([8, 7, 6, 5, 4, 3, 2, 1]);
    let episode = Episode { seed: 0x0102_0304_0506_0708, outcome: Outcome::Truncated, truncation_value: 2.5 };
    let steps: Vec<Step> = Trajectory::parse(ID, &example(), Limits::NONE).unwrap().steps().collect();
    assert_eq!(Trajectory::of_episode(ID, "ttt", &steps, episode).unwrap().columns(), &expected);
}

#[test]
fn a_truncation_value_needs_a_truncated_episode() {
    let steps: Vec<Step> = Trajectory::parse(ID, &example(), Limits::NONE).unwrap().steps().collect();
    let refused = |episode| Trajectory::of_episode(ID, "ttt", &steps, episode).map(drop).unwrap_err().to_string();
    let finished = Episode { truncation_value: 0.5, ..Episode::of(Outcome::Finished) };
    assert_eq!(refused(finished), "truncation: is 0.5 for an episode that is not truncated");
    let infinite = Episode { truncation_value: f32::INFINITY, ..Episode::of(Outcome::Truncated) };
    assert_eq!(refused(infinite), "truncation: is not finite");
}

#[test]
fn every_malformed_trajectory_is_refused_by_the_field_at_fault() {
    type Change = fn(&mut Vec<u8>);
    let cases: [(Change, &str); 51] = [
        (|b| b.clear(), "columns: are truncated"),
        (|b| b[0] = 2, "format: is 2, this program reads format 1"),
        (|b| b[1] = 4, "flags: 0x04 has unknown bits"),
        (|b| b[2] = 0, "outcome: 0 is not an outcome"),
        (|b| b[2] = 6, "outcome: 6 is not an outcome"),
        (|b| b[2] = 5, "truncation: is missing"),
        (|b| drop(b.splice(3..7, [0])), "game: is empty"),
        (|b| drop(b.splice(3..4, [0x81, 2])), "game: has 257 bytes, the limit is 256"),
        (|b| drop(b.splice(3..4, [0x83, 0])), "game: is not a number in the shortest encoding"),
        (|b| b[4] = 0xff, "game: is not UTF-8"),
        (|b| b[7] = 65, "steps: has 65 steps, the limit is 64"),
        (|b| b[8] = 1, "ply: 2 steps from ply 1 exceed the 2 plies of the episode"),
        (|b| b[8] = 2, "ply: 2 steps from ply 2 exceed the 2 plies of the episode"),
        (|b| b[9] = 0, "steps: is empty"),
        (|b| b[9] = 1, "steps: has 1 of 2 steps"),
        (|b| b[10] = 1, "steps[1].kind: is missing or not a number"),
        (|b| b[10] = 3, "kinds: are more than the 2 steps"),
        (|b| b[10] = 120, "columns: are truncated"),
        (|b| drop(b.splice(11..12, [1, 3, 8])), "search_simulations: is a column that this version does not support"),
        (|b| drop(b.splice(11..12, [1, 4, 8])), "root_values: is a column that this version does not support"),
        (|b| drop(b.splice(11..12, [1, 5, 8])), "truncation: has 8 bytes, expected 4"),
        (|b| add(b, 5, &[0; 4]), "truncation: is given for an episode that is not truncated"),
        (|b| truncate(b, f32::NAN), "truncation: is not finite"),
        (|b| truncate(b, f32::NEG_INFINITY), "truncation: is not finite"),
        (|b| drop(b.splice(11..12, [1, 6, 4])), "seed: has 4 bytes, expected 8"),
        (|b| add(b, 6, &[0; 8]), "seed: is 0; leave the column out"),
        (|b| add(b, 6, &[0; 7]), "seed: has 7 bytes, expected 8"),
        (|b| drop(b.splice(11..12, [1, 6, 8])), "columns: are truncated"),
        (|b| drop(b.splice(11..12, [2, 6, 8, 5, 4])), "optional columns: are not in ascending order of id"),
        (|b| drop(b.splice(11..12, [1, 9, 8])), "optional columns: have the unknown column 9"),
        (|b| add(b, 7, &[9; 4]), "positions: have 4 bytes, expected 8"),
        (|b| add(b, 7, &[]), "positions: are empty; leave the column out"),
        (|b| drop(b.splice(11..12, [1, 7, 8])), "columns: are truncated"),
        (|b| add(b, 8, &[9; 8]), "surprises: have 8 bytes, expected 4"),
        (|b| add(b, 8, &f32::NAN.to_le_bytes()), "surprises[0]: is not a finite number of at least 0"),
        (|b| add(b, 8, &f32::INFINITY.to_le_bytes()), "surprises[0]: is not a finite number of at least 0"),
        (|b| add(b, 8, &(-0.5_f32).to_le_bytes()), "surprises[0]: is not a finite number of at least 0"),
        (|b| drop(b.splice(11..12, [2, 8, 4, 7, 8])), "optional columns: are not in ascending order of id"),
        (|b| drop(b.splice(11..12, [2, 7, 8, 7, 8])), "optional columns: are not in ascending order of id"),
        (|b| drop(b.splice(11..12, [1, 1, 4])), "rewards: have 4 bytes for 2 steps"),
        (|b| drop(b.splice(11..12, [2, 1, 8, 1, 8])), "optional columns: are not in ascending order of id"),
        (|b| b[13] = 100, "steps[1].policy: has 99 entries for 9 actions"),
        (|b| b[15] = 9, "steps[1].action: 9 is not below 9"),
        (|b| b[18..20].copy_from_slice(&[0x80, 0x7f]), "values[0]: is not finite"),
        (|b| b[24] = 8, "steps[1].policy: is not in ascending order of action"),
        (|b| b[25] = 9, "steps[1].policy: 9 is not below 9"),
        (|b| b[29] = 0xbe, "steps[1].policy: -0.25 is not a probability"),
        (|b| b[28..30].copy_from_slice(&[0, 0x3f]), "steps[1].policy: sums to 1.25, expected 1"),
        (|b| b[34] = 1, "versions: have two consecutive runs of one version"),
        (|b| b[34] = 3, "versions: have a run of 3 steps, expected 1 to 2"),
        (|b| b.push(0), "columns: have 1 bytes after the end"),
    ];
    for (change, expected) in cases {
        let mut bytes = example();
        change(&mut bytes);
        if expected.starts_with("versions: have two") {
            bytes.extend([1, 0xac, 2]);
        }
        let refused = Trajectory::parse(ID, &bytes, Limits { steps_max: 64, actions: 9 }).map(drop).unwrap_err();
        assert_eq!(refused.to_string(), expected);
    }
}

#[test]
fn an_encoding_that_is_not_the_shortest_is_refused() {
    let zeros = {
        let mut bytes = example();
        bytes.splice(11..12, [1, 1, 8]);
        bytes.extend([0; 8]);
        bytes
    };
    let wide = {
        let mut bytes = example();
        bytes[1] = FLAG_WIDE_ACTIONS;
        bytes.splice(24..26, [0, 0, 8, 0]);
        bytes.splice(14..16, [4, 0, 4, 0]);
        bytes
    };
    let set = {
        let mut bytes = example();
        bytes[1] = FLAG_BIT_SETS;
        bytes.splice(24..26, [1, 1]);
        bytes.splice(11..11, [2]);
        bytes
    };
    let refused = |bytes: &[u8]| Trajectory::parse(ID, bytes, Limits::NONE).map(drop).unwrap_err().to_string();
    assert_eq!(refused(&zeros), "rewards: are all zero; leave the column out");
    assert_eq!(refused(&wide), "flags: do not describe the shortest encoding");
    assert_eq!(refused(&set), "flags: do not describe the shortest encoding");
}

#[test]
fn positions_and_surprises_stand_behind_the_other_columns_and_in_no_part() {
    let mut expected = example();
    expected.splice(11..12, [2, 7, 8, 8, 4]);
    expected.extend([8, 7, 6, 5, 4, 3, 2, 1]);
    expected.extend(0.5_f32.to_le_bytes());
    let plain = Trajectory::parse(ID, &example(), Limits::NONE).unwrap();
    let described = plain.with_positions(&[0x0102_0304_0506_0708], &[0.5]).unwrap();
    assert_eq!(described.columns(), &expected);
    assert_eq!(described.segment(0, 9), plain.segment(0, 9));
    assert_eq!(described.with_positions(&[], &[]).unwrap(), plain);
    let mut part = plain.segment(1, 0).unwrap().columns().to_vec();
    let optional = 3 + 1 + 4;
    assert_eq!(part[optional], 0);
    part.splice(optional..=optional, [1, 7, 8]);
    part.extend([1; 8]);
    let refused = Segment::parse(ID, part.into(), Limits::NONE).map(drop).unwrap_err();
    assert_eq!(refused.to_string(), "positions: are allowed in a whole trajectory only");
}

#[test]
fn positions_and_surprises_are_one_for_each_full_step() {
    let plain = Trajectory::parse(ID, &example(), Limits::NONE).unwrap();
    let refused = |positions: &[u64], surprises: &[f32]| plain.with_positions(positions, surprises).unwrap_err();
    assert_eq!(refused(&[1, 2], &[]).to_string(), "positions: have length 2, expected 1 (one per full step)");
    assert_eq!(refused(&[], &[1.0, 2.0]).to_string(), "surprises: have length 2, expected 1 (one per full step)");
    assert_eq!(refused(&[], &[f32::NAN]).field, "surprises[0]");
}

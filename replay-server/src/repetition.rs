//! Measures how often stored games repeat positions: collapsed self-play stores a few positions again and again.

use experience::{StepKind, Trajectory};

/// Maximum number of measured games, latest first.
const GAMES_MAX: usize = 3_000;
/// Number of samples after which no older game is measured. This bounds memory, and limits the time to about a tenth of
/// a second, however long games are.
const SAMPLES_MAX: usize = 1 << 20;
/// Number of commonest positions that `top_1000_share` counts.
const COMMONEST: usize = 1_000;
/// Plies per band; the last band has all later plies.
const BAND_PLIES: usize = 8;
/// Groups of samples: the bands of plies in games with a searched first step, and all other games.
const PARTS: [&str; 5] = ["empty/0-7", "empty/8-15", "empty/16-23", "empty/24-", "other"];

/// The repetition of positions among samples (full steps).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Repetition {
    /// Fraction of distinct positions in each group, and in all samples as `overall`; NaN for a group without samples.
    pub(crate) distinct_shares: Vec<(&'static str, f64)>,
    /// Fraction of samples at the 1,000 commonest positions.
    pub(crate) top_1000_share: f64,
}

impl Repetition {
    /// Measures the latest games. The counts are exact, in O(samples · log samples). Returns `None` if no trajectory
    /// has positions.
    pub(crate) fn of<'a>(newest_first: impl Iterator<Item = &'a Trajectory>) -> Option<Self> {
        let mut parts = PARTS.map(|_| Vec::new());
        let mut samples = 0;
        let has_positions = |trajectory: &&Trajectory| trajectory.positions().len() > 0;
        for trajectory in newest_first.take(GAMES_MAX).filter(has_positions) {
            let is_searched = |kind| !matches!(kind, StepKind::Opening);
            let is_from_empty = trajectory.steps().next().is_some_and(|step| is_searched(step.kind));
            for (ply, position) in trajectory.full_plies().zip(trajectory.positions()) {
                let other = PARTS.len() - 1;
                parts[if is_from_empty { (ply / BAND_PLIES).min(other - 1) } else { other }].push(position);
            }
            samples += trajectory.positions().len();
            if samples >= SAMPLES_MAX {
                break;
            }
        }
        if samples == 0 {
            return None;
        }
        parts.iter_mut().for_each(|part| part.sort_unstable());
        let mut all = parts.concat();
        // A stable sort merges the sorted parts.
        all.sort();
        let share = |part: &[u64]| repeats(part).count() as f64 / part.len() as f64;
        let named = PARTS.into_iter().zip(parts.iter().map(|part| share(part)));
        let distinct_shares = std::iter::once(("overall", share(&all))).chain(named).collect();
        let mut counts: Vec<usize> = repeats(&all).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let commonest: usize = counts.iter().take(COMMONEST).sum();
        Some(Self { distinct_shares, top_1000_share: commonest as f64 / samples as f64 })
    }
}

/// Returns the number of occurrences of each position in a sorted list.
fn repeats(sorted: &[u64]) -> impl Iterator<Item = usize> {
    sorted.chunk_by(|a, b| a == b).map(<[u64]>::len)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap, HashSet};

    use experience::{ActionProbability, Step, TrajectoryId, WeightsVersion};
    use game::{Action, Outcome, mix};

    use super::*;

    /// Returns a game of these steps, `F` for a full and `o` for an opening step, with these positions.
    fn game(sequence: u64, steps: &str, positions: &[u64]) -> Trajectory {
        let policy = vec![ActionProbability { action: Action(0), probability: 1.0 }];
        let full = StepKind::Full { policy, value: 0.0 };
        let kind = |letter| if letter == 'F' { full.clone() } else { StepKind::Opening };
        let (action, weights_version) = (Action(0), WeightsVersion(1));
        let steps = steps.chars().map(|letter| Step { action, reward: 0.0, kind: kind(letter), weights_version });
        let id = TrajectoryId { actor: 1, epoch: 1, sequence };
        let trajectory = Trajectory::of(id, "any", &steps.collect::<Vec<_>>(), Outcome::Draw).unwrap();
        trajectory.with_positions(positions, &[]).unwrap()
    }

    fn shares(games: &[Trajectory]) -> BTreeMap<&'static str, f64> {
        Repetition::of(games.iter()).unwrap().distinct_shares.into_iter().collect()
    }

    #[test]
    fn games_from_the_empty_board_count_by_their_plies_and_others_together() {
        let plies: Vec<u64> = (0..26).collect();
        let other: Vec<u64> = (100..125).collect();
        let all = "F".repeat(26);
        let forked = format!("o{}", "F".repeat(25));
        let mut again = plies.clone();
        again[9] = 1_000;
        let found = shares(&[game(0, &all, &plies), game(1, &all, &again), game(2, &forked, &other)]);
        let expected = [
            ("empty/0-7", 8.0 / 16.0),
            ("empty/8-15", 9.0 / 16.0),
            ("empty/16-23", 8.0 / 16.0),
            ("empty/24-", 2.0 / 4.0),
            ("other", 1.0),
            ("overall", 52.0 / 77.0),
        ];
        assert_eq!(found, expected.into());
    }

    #[test]
    fn trajectories_without_positions_are_not_measured_and_parts_without_samples_are_no_number() {
        let unknown = game(0, "FF", &[]);
        assert_eq!(Repetition::of([&unknown].into_iter()), None);
        let found = shares(&[unknown, game(1, "FF", &[3, 3])]);
        assert_eq!((found["overall"], found["empty/0-7"]), (0.5, 0.5));
        assert!(found["other"].is_nan());
    }

    /// Games of up to 200 plies; the number of distinct positions per ply grows with the ply.
    #[test]
    fn shares_of_thousands_of_games_that_repeat_each_other_are_those_of_counting_all() {
        for (games, plies) in [(10, 200), (3_000, 36), (3_000, 200), (3_500, 30)] {
            let position = |number: u64, ply: u64| {
                let variety = 1 + ply * ply / 4;
                mix((ply << 32) | (mix((number << 16) | ply) % variety))
            };
            let positions = |number| (0..plies).map(|ply| position(number, ply)).collect::<Vec<_>>();
            let steps = "F".repeat(usize::try_from(plies).unwrap());
            let stored: Vec<_> = (0..games).map(|number| game(number, &steps, &positions(number))).collect();
            let found = Repetition::of(stored.iter()).unwrap();
            let newest: Vec<u64> = (0..games.min(3_000)).flat_map(positions).collect();
            let distinct = newest.iter().collect::<HashSet<_>>().len();
            assert_eq!(found.distinct_shares[0], ("overall", distinct as f64 / newest.len() as f64));
            let mut counts: HashMap<u64, usize> = HashMap::new();
            newest.iter().for_each(|position| *counts.entry(*position).or_default() += 1);
            let mut counts: Vec<usize> = counts.into_values().collect();
            counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
            let top: usize = counts.iter().take(1_000).sum();
            assert_eq!(found.top_1000_share, top as f64 / newest.len() as f64);
        }
    }

    #[test]
    fn games_of_any_length_are_measured_in_bounded_memory() {
        let plies = 1 << 16;
        let positions: Vec<u64> = (0..plies).collect();
        let long = game(0, &"F".repeat(1 << 16), &positions);
        let mut measured = 0;
        let games = std::iter::repeat_n(&long, 3_000).inspect(|_| measured += 1);
        assert_eq!(Repetition::of(games).unwrap().distinct_shares[0], ("overall", 1.0 / 16.0));
        assert_eq!(measured, SAMPLES_MAX / (1 << 16));
    }
}

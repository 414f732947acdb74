use std::collections::HashMap;

use experience::{ActionProbability, Step, StepKind, Trajectory};
use game::{Action, Outcome};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use weights::WeightsVersion;

use super::*;

fn id(sequence: u64) -> TrajectoryId {
    TrajectoryId { actor: 1, epoch: 1, sequence }
}

/// A trajectory written as its steps: `F` full, `f` fast, `o` opening.
fn trajectory(sequence: u64, steps: &str) -> Arc<PackedTrajectory> {
    let kind = |letter| match letter {
        'F' => StepKind::Full { policy: vec![ActionProbability { action: Action(0), probability: 1.0 }], value: 0.0 },
        'f' => StepKind::Fast { value: 0.0 },
        _ => StepKind::Opening,
    };
    let step = |letter| Step { action: Action(0), reward: 0.0, kind: kind(letter), weights_version: WeightsVersion(1) };
    let steps = steps.chars().map(step).collect();
    pack(Trajectory { id: id(sequence), game: "test".into(), steps, outcome: Outcome::Draw })
}

fn pack(trajectory: Trajectory) -> Arc<PackedTrajectory> {
    Arc::new(PackedTrajectory::pack(&trajectory))
}

fn window(items_min: u64, capacity_items: u64) -> Window {
    Window { items_min, exponent: 0.5, slope: 0.5, capacity_items }
}

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(7)
}

fn ids(removed: &Insertion) -> Vec<u64> {
    let Insertion::Inserted { removed, .. } = removed else { panic!("{removed:?}") };
    removed.iter().map(|removed| removed.id.sequence).collect()
}

#[test]
fn only_full_steps_are_drawn() {
    let mut table = Table::new(window(100, 100));
    table.insert(trajectory(0, "ofFfF"));
    let mut rng = rng();
    for _ in 0..50 {
        assert!([2, 4].contains(&table.sample(&mut rng).unwrap().ply));
    }
}

#[test]
fn an_empty_table_and_one_without_full_steps_draw_nothing() {
    let mut table = Table::new(window(100, 100));
    assert!(table.sample(&mut rng()).is_none());
    table.insert(trajectory(0, "off"));
    assert!(table.sample(&mut rng()).is_none());
    assert_eq!((table.trajectories(), table.items()), (1, 0));
}

#[test]
fn a_trajectory_leaves_once_none_of_its_items_is_among_the_newest() {
    let mut table = Table::new(window(4, 4));
    assert_eq!(ids(&table.insert(trajectory(0, "FFF"))), []);
    assert_eq!(ids(&table.insert(trajectory(1, "FFF"))), []);
    assert_eq!(ids(&table.insert(trajectory(2, "F"))), [0]);
    assert_eq!((table.trajectories(), table.items()), (2, 4));
    assert_eq!(ids(&table.insert(trajectory(3, "FFFFFFF"))), [1, 2]);
    assert_eq!(table.window_items(), 4);
}

#[test]
fn a_duplicate_changes_nothing_even_after_the_trajectory_has_left() {
    let mut table = Table::new(window(1, 2));
    table.insert(trajectory(0, "FF"));
    table.insert(trajectory(1, "FF"));
    assert_eq!((table.trajectories(), table.totals().items), (1, 4));
    assert_eq!(table.insert(trajectory(0, "FF")), Insertion::Duplicate);
    assert_eq!(table.insert(trajectory(1, "FF")), Insertion::Duplicate);
    assert_eq!(table.totals(), TableTotals { trajectories: 2, items: 4 });
}

#[test]
fn a_quarantined_trajectory_is_never_drawn_and_stays_listed() {
    let mut table = Table::new(window(100, 100));
    for sequence in 0..3 {
        table.insert(trajectory(sequence, "FFF"));
    }
    assert_eq!(table.quarantine(id(1)), Quarantine::Quarantined { items: 3 });
    assert_eq!(table.quarantine(id(1)), Quarantine::Already);
    assert_eq!(table.quarantine(id(9)), Quarantine::Unknown);
    let mut rng = rng();
    for _ in 0..200 {
        assert_ne!(table.sample(&mut rng).unwrap().trajectory.id(), id(1));
    }
    let listed: Vec<_> =
        table.held().map(|held| (held.trajectory.id().sequence, held.items, held.quarantined)).collect();
    assert_eq!(listed, [(2, 3, false), (1, 0, true), (0, 3, false)]);
}

#[test]
fn the_window_cuts_off_the_oldest_items_even_inside_a_trajectory() {
    // 16 items ever: 1 * (1 + 0.5 * (sqrt(16) - 1) / 0.5) = 4 items.
    let mut table = Table::new(window(1, 100));
    table.insert(trajectory(0, "FFFFFFFFFFFFF"));
    table.insert(trajectory(1, "FFF"));
    assert_eq!(table.window_items(), 4);
    let mut rng = rng();
    let mut drawn: Vec<_> = (0..200)
        .map(|_| table.sample(&mut rng).unwrap())
        .map(|drawn| (drawn.trajectory.id().sequence, drawn.ply))
        .collect();
    drawn.sort_unstable();
    drawn.dedup();
    assert_eq!(drawn, [(0, 12), (1, 0), (1, 1), (1, 2)]);
}

#[test]
fn a_restored_table_refuses_what_an_earlier_life_has_seen_and_keeps_its_window() {
    let mut seen = SeenIds::new();
    seen.insert(id(0));
    let mut table = Table::new(window(1, 100));
    table.remember(&seen, TableTotals { trajectories: 1, items: 15 });
    assert_eq!(table.insert(trajectory(0, "F")), Insertion::Duplicate);
    assert_eq!(ids(&table.insert(trajectory(1, "F"))), []);
    assert_eq!((table.window_items(), table.window().items(16)), (1, 4));
}

/// Chi-square with 99 degrees of freedom over 100 items and 100 000 draws: 1000 expected in each. The bound is the
/// quantile at 1 − 10⁻⁶ (about 178): with the seed fixed a pass stays a pass, and a skew of 5 % on half of the items
/// would add 250.
#[test]
fn sampling_is_uniform_over_items_whatever_the_lengths_of_trajectories() {
    let mut table = Table::new(window(1000, 1000));
    let lengths = [1, 2, 3, 4, 5, 35, 50];
    for (sequence, &length) in lengths.iter().enumerate() {
        table.insert(trajectory(sequence as u64, &"Ff".repeat(length)));
    }
    let mut counts: HashMap<(u64, usize), u32> = HashMap::new();
    let mut rng = rng();
    for _ in 0..100_000 {
        let drawn = table.sample(&mut rng).unwrap();
        assert_eq!((drawn.probability, drawn.table_items), (0.01, 100));
        *counts.entry((drawn.trajectory.id().sequence, drawn.ply)).or_default() += 1;
    }
    assert_eq!(counts.len(), 100);
    let chi_square: f64 = counts.values().map(|&count| (f64::from(count) - 1000.0).powi(2) / 1000.0).sum();
    assert!(chi_square < 178.0, "{chi_square}");
}

/// A Connect Four game of 30 moves, all of them searched in full, by two weights versions.
fn connect_four(sequence: u64, rng: &mut ChaCha8Rng) -> Trajectory {
    let mut step = |ply| {
        let weights: Vec<f32> = (0..rng.random_range(5..=7)).map(|_| rng.random()).collect();
        let total: f32 = weights.iter().sum();
        let policy = (0..).map(Action).zip(weights);
        let policy = policy.map(|(action, weight)| ActionProbability { action, probability: weight / total }).collect();
        let kind = StepKind::Full { policy, value: rng.random_range(-1.0..1.0) };
        let weights_version = WeightsVersion(300 + sequence / 100 + u64::from(ply > 20));
        Step { action: Action(rng.random_range(0..7)), reward: 0.0, kind, weights_version }
    };
    let steps = (0..30).map(&mut step).collect();
    Trajectory { id: id(sequence), game: "connect_four".into(), steps, outcome: Outcome::Draw }
}

#[test]
fn a_connect_four_position_takes_at_most_15_percent_of_dense_float32_planes() {
    // Planes [3, 6, 7], a policy over 7 columns, and win, draw and loss.
    const DENSE_BYTES: u64 = 4 * (3 * 6 * 7 + 7 + 3);
    // What an allocator may add to each of a trajectory's two allocations: a header of 8 bytes, and up to 15 to make it
    // a multiple of 16.
    const ALLOCATOR_BYTES: u64 = 2 * (8 + 15);
    let mut table = Table::new(window(100_000, 100_000));
    let mut rng = rng();
    for sequence in 0..1000 {
        table.insert(pack(connect_four(sequence, &mut rng)));
    }
    assert_eq!(table.items(), 30_000);
    let bytes = table.bytes() + table.trajectories() as u64 * ALLOCATOR_BYTES;
    let dense_bytes = table.items() * DENSE_BYTES;
    assert!(100 * bytes <= 15 * dense_bytes, "{} bytes a position, dense {DENSE_BYTES}", bytes / table.items());
}

/// The same table, written without any index: a list of trajectories and their items, rebuilt for every question.
struct Naive {
    window: Window,
    held: Vec<(TrajectoryId, Vec<usize>, bool)>,
    seen: Vec<TrajectoryId>,
    items_ever: u64,
}

impl Naive {
    fn insert(&mut self, trajectory: &PackedTrajectory) -> bool {
        if self.seen.contains(&trajectory.id()) {
            return false;
        }
        self.seen.push(trajectory.id());
        let plies: Vec<usize> = trajectory.full_plies().collect();
        self.items_ever += plies.len() as u64;
        self.held.push((trajectory.id(), plies, false));
        while self.held.len() > 1
            && self.held[1..].iter().map(|(_, plies, _)| plies.len() as u64).sum::<u64>() >= self.window.capacity_items
        {
            self.held.remove(0);
        }
        true
    }

    fn quarantine(&mut self, id: TrajectoryId) {
        for (held, plies, quarantined) in &mut self.held {
            if *held == id {
                plies.clear();
                *quarantined = true;
            }
        }
    }

    fn drawable(&self) -> Vec<(TrajectoryId, usize)> {
        let mut items: Vec<_> =
            self.held.iter().flat_map(|(id, plies, _)| plies.iter().map(move |&ply| (*id, ply))).collect();
        let window = self.window.items(self.items_ever).min(items.len() as u64);
        items.drain(..items.len() - window as usize);
        items
    }
}

/// Answers a table's only question with the number it is told.
fn item_at(table: &Table, index: u64) -> (TrajectoryId, usize) {
    let number = table.end - table.window_items() + index;
    let entry = &table.entries[table.entries.partition_point(|entry| entry.first <= number) - 1];
    (entry.trajectory.id(), entry.trajectory.full_plies().nth((number - entry.first) as usize).unwrap())
}

proptest! {
    #[test]
    fn the_table_agrees_with_a_list(
        items_min in 1_u64..20, more in 0_u64..40,
        script in prop::collection::vec((0_u64..40, "[Ffo]{1,12}", prop::option::weighted(0.2, 0_u64..40)), 1..60),
    ) {
        let window = window(items_min, items_min + more);
        let mut table = Table::new(window);
        let mut naive = Naive { window, held: Vec::new(), seen: Vec::new(), items_ever: 0 };
        for (sequence, steps, quarantine) in script {
            let trajectory = trajectory(sequence, &steps);
            let inserted = naive.insert(&trajectory);
            prop_assert_eq!(table.insert(trajectory) != Insertion::Duplicate, inserted);
            if let Some(sequence) = quarantine {
                naive.quarantine(id(sequence));
                table.quarantine(id(sequence));
            }
            let drawable = naive.drawable();
            prop_assert_eq!(table.window_items(), drawable.len() as u64);
            let items: Vec<_> = (0..table.window_items()).map(|index| item_at(&table, index)).collect();
            prop_assert_eq!(items, drawable.clone());
            match table.sample(&mut rng()) {
                Some(drawn) => prop_assert!(drawable.contains(&(drawn.trajectory.id(), drawn.ply))),
                None => prop_assert!(drawable.is_empty()),
            }
            let held: Vec<_> = table.held().map(|held| (held.trajectory.id(), held.quarantined)).collect();
            let expected: Vec<_> = naive.held.iter().rev().map(|(id, _, quarantined)| (*id, *quarantined)).collect();
            prop_assert_eq!(held, expected);
            let trajectory_bytes: u64 = table.entries.iter().map(Entry::trajectory_bytes).sum();
            prop_assert_eq!(table.trajectory_bytes, trajectory_bytes);
        }
    }
}

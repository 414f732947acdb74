mod agreement;
mod change;
mod draws;
mod memory;
mod model;
mod numbers;
mod priorities;
mod quarantine;
mod removal;
mod revise;
mod total_weight;
mod weighted;

use experience::{ActionProbability, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Outcome};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::{Selector, Window};

fn id(sequence: u64) -> TrajectoryId {
    TrajectoryId { actor: 1, epoch: 1, sequence }
}

/// Returns a trajectory of actor 1 and weights version 1, with one step per character: `F` full, `f` fast, `o` opening.
fn trajectory(sequence: u64, steps: &str) -> Trajectory {
    trajectory_by(id(sequence), steps, 1)
}

fn trajectory_by(id: TrajectoryId, steps: &str, version: u64) -> Trajectory {
    let kind = |letter| match letter {
        'F' => StepKind::Full { policy: vec![ActionProbability { action: Action(0), probability: 1.0 }], value: 0.0 },
        'f' => StepKind::Fast { value: 0.0 },
        _ => StepKind::Opening,
    };
    let weights_version = WeightsVersion(version);
    let step = |letter| Step { action: Action(0), reward: 0.0, kind: kind(letter), weights_version };
    // A trajectory has at least one step; an opening step is not an item.
    let steps: Vec<Step> = if steps.is_empty() { "o" } else { steps }.chars().map(step).collect();
    Trajectory::of(id, "test", &steps, Outcome::Draw).unwrap()
}

fn window(items_min: u64, capacity_items: u64) -> Window {
    Window { items_min, exponent: 0.5, slope: 0.5, capacity_items }
}

/// Returns settings with the given selector, and a window and capacity of 1000 items.
fn by(selector: Selector) -> TableSettings {
    TableSettings { selector, ..TableSettings::uniform(window(1000, 1000)) }
}

fn prioritised(exponent: f64) -> TableSettings {
    by(Selector::Prioritised { exponent })
}

/// Returns a table with the trajectories 0, 1, 2… of the given steps.
fn table(settings: TableSettings, steps: &[&str]) -> Table {
    let mut table = Table::new(settings.check().unwrap());
    for (sequence, steps) in (0..).zip(steps) {
        let _ = table.insert(trajectory(sequence, steps), Duration::ZERO);
    }
    table
}

impl Table {
    /// Draws one item. Returns `None` if no item can be drawn.
    fn sample(&mut self, rng: &mut ChaCha8Rng) -> Option<Drawn> {
        let mut drawn = Vec::new();
        self.draw(1, rng, &mut drawn);
        drawn.pop()
    }

    /// Returns all stored item priorities, oldest trajectory first.
    fn priorities(&self) -> impl Iterator<Item = (ItemKey, f64)> + '_ {
        self.entries.iter().flat_map(|entry| {
            let (trajectory, items) = (entry.trajectory.id(), entry.trajectory.full_plies().enumerate());
            items.filter_map(move |(item, ply)| Some((ItemKey { trajectory, ply }, entry.priority(item)?)))
        })
    }
}

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(7)
}

fn ids(removed: &[Removed]) -> Vec<u64> {
    removed.iter().map(|removed| removed.id.sequence).collect()
}

/// Returns the sequence number and ply of the next `draws` draws; fewer if the table runs out of items.
fn draw(table: &mut Table, draws: usize) -> Vec<(u64, usize)> {
    let mut rng = rng();
    let drawn = std::iter::from_fn(|| table.sample(&mut rng));
    drawn.take(draws).map(|drawn| (drawn.trajectory.id().sequence, drawn.ply())).collect()
}

/// Returns the distinct items of many draws.
fn drawable(table: &mut Table) -> Vec<(u64, usize)> {
    let mut drawn = draw(table, 300);
    drawn.sort_unstable();
    drawn.dedup();
    drawn
}

/// Returns a Connect Four game of 30 moves, all with full searches, by two weights versions.
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
    let steps: Vec<Step> = (0..30).map(&mut step).collect();
    Trajectory::of(id(sequence), "connect_four", &steps, Outcome::Draw).unwrap()
}

/// Returns the bytes per position for 30 000 positions of Connect Four, including an allocator overhead for each
/// allocation: an 8-byte header, and up to 15 bytes of padding to a multiple of 16.
fn connect_four_bytes(settings: TableSettings, allocations: u64) -> u64 {
    let mut table = Table::new(settings);
    let mut rng = rng();
    for sequence in 0..1000 {
        let _ = table.insert(connect_four(sequence, &mut rng), Duration::ZERO);
    }
    assert_eq!(table.items(), 30_000);
    (table.bytes() + table.trajectories() as u64 * allocations * (8 + 15)).div_ceil(table.items())
}

#[test]
fn a_connect_four_position_takes_at_most_15_percent_of_dense_float32_planes() {
    // Planes [3, 6, 7], a policy over 7 columns, and win, draw and loss.
    const DENSE_BYTES: u64 = 4 * (3 * 6 * 7 + 7 + 3);
    let bytes = connect_four_bytes(TableSettings::uniform(window(100_000, 100_000)), 2);
    assert!(100 * bytes <= 15 * DENSE_BYTES, "{bytes} bytes a position, dense {DENSE_BYTES}");
}

/// Per-item state: a priority, a weight with a share of the tree, an index, and spare capacity.
#[test]
fn the_state_of_an_item_takes_at_most_40_bytes() {
    let plain = TableSettings::uniform(window(100_000, 100_000));
    let all = TableSettings { selector: Selector::Prioritised { exponent: 1.0 }, ..plain };
    let (plain, all) = (connect_four_bytes(plain, 2), connect_four_bytes(all, 4));
    assert!(all <= plain + 40, "{plain} bytes a position became {all}");
}

#[test]
fn only_full_steps_are_drawn() {
    let mut table = table(by(Selector::Uniform), &["ofFfF"]);
    assert_eq!(drawable(&mut table), [(0, 2), (0, 4)]);
}

#[test]
fn an_empty_table_and_one_without_full_steps_draw_nothing() {
    for selector in SELECTORS {
        let mut table = table(by(selector), &[]);
        assert!(table.sample(&mut rng()).is_none());
        let _ = table.insert(trajectory(0, "off"), Duration::ZERO);
        assert!(table.sample(&mut rng()).is_none());
        assert_eq!((table.trajectories(), table.items()), (1, 0));
    }
}

#[test]
fn the_window_cuts_off_the_oldest_items_even_inside_a_trajectory() {
    for selector in [Selector::Uniform, Selector::Prioritised { exponent: 1.0 }] {
        // With 16 items ever inserted, the window is 1 * (1 + 0.5 * (sqrt(16) - 1) / 0.5) = 4 items.
        let settings = TableSettings { selector, ..TableSettings::uniform(window(1, 100)) };
        let mut table = table(settings, &["FFFFFFFFFFFFF", "FFF"]);
        assert_eq!(table.window_items(), 4);
        assert_eq!(drawable(&mut table), [(0, 12), (1, 0), (1, 1), (1, 2)]);
    }
}

#[test]
fn a_restored_table_keeps_its_window() {
    let mut table = table(TableSettings::uniform(window(1, 100)), &[]);
    table.remember(TableTotals { trajectories: 1, items: 15 });
    let _ = table.insert(trajectory(1, "F"), Duration::ZERO);
    assert_eq!((table.window_items(), table.settings.window.items(16)), (1, 4));
}

#[test]
fn tables_share_a_trajectory() {
    let shared = trajectory(0, "FF");
    let mut tables = [table(by(Selector::MaxHeap), &[]), table(prioritised(0.5), &[])];
    for table in &mut tables {
        let _ = table.insert(shared.clone(), Duration::ZERO);
    }
    assert_eq!(shared.clones(), 3);
}

const SELECTORS: [Selector; 3] = [Selector::Uniform, Selector::Prioritised { exponent: 0.6 }, Selector::MaxHeap];

//! Tests that the table agrees with the reference model over random sequences of all operations.

use proptest::prelude::*;
use proptest::sample::Index;

use super::model::{Model, State};
use super::*;
use crate::{RateLimiter, RateLimiterSettings};

#[derive(Debug, Clone)]
enum Event {
    Insert { actor: u64, steps: String, version: u64 },
    Sample { draws: usize },
    Update(Vec<(Index, Index, f64)>),
    Quarantine(Index),
    Release(Index),
    QuarantineActor(u64),
    ReleaseActor(u64),
    Publish(u64),
    Expire,
    Change(TableSettings),
}

fn priority() -> impl Strategy<Value = f64> {
    let known = prop::sample::select(vec![0.0, 1.0, 2.0, 1e-300, 1e-30, 1e30, 1e300]);
    prop_oneof![known, 0.0..10.0]
}

fn selector() -> impl Strategy<Value = Selector> {
    let exponents = prop::sample::select(vec![0.0, 0.6, 1.0, 2.0]);
    prop_oneof![
        prop::sample::select(vec![Selector::Uniform, Selector::MaxHeap]),
        exponents.prop_map(|exponent| Selector::Prioritised { exponent }),
    ]
}

fn settings() -> impl Strategy<Value = TableSettings> {
    let retention = (
        prop::option::weighted(0.3, 0_u64..100),
        prop::option::weighted(0.3, 300_u64..5000),
        prop::option::weighted(0.3, 0_u64..60),
    );
    (selector(), 1_u64..30, 0_u64..200, retention).prop_map(|(selector, items_min, more, bounds)| {
        let (age, trajectory_bytes_max, lag_versions_max) = bounds;
        let retention = Retention { age_max: age.map(Duration::from_secs), trajectory_bytes_max, lag_versions_max };
        let window = window(items_min, items_min + more);
        // The trajectories hold no positions, so that weighted draws have the same distribution.
        let merge_positions = selector == Selector::Uniform && more % 2 == 0;
        let surprise_share = if merge_positions { 0.5 } else { 0.0 };
        TableSettings { selector, window, retention, merge_positions, surprise_share }
    })
}

fn event() -> impl Strategy<Value = Event> {
    let version = prop_oneof![8 => 0_u64..50, 1 => 10_000_u64..10_050, 1 => u64::MAX - 50..];
    let steps = prop_oneof!["[Ffo]{0,12}", "F{1,60}"];
    let insert = (0_u64..4, steps, version.clone());
    let some_priority = prop_oneof![50 => priority(), 1 => Just(f64::NAN), 1 => Just(-1.0), 1 => Just(f64::INFINITY)];
    let update = prop::collection::vec((any::<Index>(), any::<Index>(), some_priority), 0..8);
    prop_oneof![
        8 => insert.prop_map(|(actor, steps, version)| Event::Insert { actor, steps, version }),
        8 => prop_oneof![4 => 1_usize..12, 1 => 12_usize..100].prop_map(|draws| Event::Sample { draws }),
        4 => update.prop_map(Event::Update),
        2 => any::<Index>().prop_map(Event::Quarantine),
        2 => any::<Index>().prop_map(Event::Release),
        1 => (0_u64..4).prop_map(Event::QuarantineActor),
        1 => (0_u64..4).prop_map(Event::ReleaseActor),
        1 => version.prop_map(Event::Publish),
        1 => Just(Event::Expire),
        1 => settings().prop_map(Event::Change),
    ]
}

/// A table and the reference model, with a limiter that counts the results.
struct Pair {
    table: Table,
    model: Model,
    limiter: RateLimiter,
    rng: ChaCha8Rng,
    now: Duration,
    inserted: Vec<Trajectory>,
}

impl Pair {
    fn new(settings: TableSettings) -> Self {
        let limiter = RateLimiterSettings { samples_per_insert: 1.0, min_items: 1, error_items: 1.0 };
        Self {
            table: Table::new(settings),
            model: Model::new(settings),
            limiter: RateLimiter::new(limiter),
            rng: rng(),
            now: Duration::from_secs(1_000_000),
            inserted: Vec::new(),
        }
    }

    /// Returns the id of any trajectory ever inserted, or an unknown id if no trajectory was inserted.
    fn any_id(&self, index: Index) -> TrajectoryId {
        if self.inserted.is_empty() { id(0) } else { index.get(&self.inserted).id() }
    }

    fn apply(&mut self, event: Event) -> Result<(), TestCaseError> {
        self.now += Duration::from_secs(3);
        match event {
            Event::Insert { actor, steps, version } => self.insert(actor, &steps, version)?,
            Event::Sample { draws } => self.sample(draws)?,
            Event::Update(updates) => {
                let key = |(trajectory, ply, priority): (Index, Index, f64)| {
                    (ItemKey { trajectory: self.any_id(trajectory), ply: ply.index(20) }, priority)
                };
                let updates: Vec<_> = updates.into_iter().map(key).collect();
                prop_assert_eq!(self.table.update_priorities(&updates).ok(), self.model.update_priorities(&updates));
            }
            Event::Quarantine(index) => {
                let id = self.any_id(index);
                let answer = self.table.quarantine(id);
                prop_assert_eq!(answer, self.model.quarantine(id));
                self.count_quarantine(answer);
            }
            Event::Release(index) => {
                let id = self.any_id(index);
                let answer = self.table.release(id);
                prop_assert_eq!(answer, self.model.release(id));
                self.count_release(answer);
            }
            Event::QuarantineActor(actor) => {
                let answer = self.table.quarantine_actor(actor);
                prop_assert_eq!(answer, self.model.quarantine_actor(actor));
                self.count_quarantine(answer);
            }
            Event::ReleaseActor(actor) => {
                let answer = self.table.release_actor(actor);
                prop_assert_eq!(answer, self.model.release_actor(actor));
                self.count_release(answer);
            }
            Event::Expire => {
                let removed = self.table.expire(self.now);
                prop_assert_eq!(&removed, &self.model.expire(self.now));
                self.count_removed(&removed);
            }
            Event::Publish(version) => {
                self.table.hold_to_newest(WeightsVersion(version));
                self.model.newest_published = WeightsVersion(version);
            }
            Event::Change(settings) => {
                self.table.change(settings);
                self.model.change(settings);
            }
        }
        self.check()
    }

    fn insert(&mut self, actor: u64, steps: &str, version: u64) -> Result<(), TestCaseError> {
        let id = TrajectoryId { actor, epoch: 1, sequence: self.inserted.len() as u64 };
        let trajectory = trajectory_by(id, steps, version);
        self.inserted.push(trajectory.clone());
        let expected = self.model.insert(&trajectory, self.now);
        let insertion = self.table.insert(trajectory, self.now);
        prop_assert_eq!(&insertion, &expected);
        self.limiter.insert(insertion.items);
        self.limiter.delete(insertion.quarantined_items);
        self.count_removed(&insertion.removed);
        Ok(())
    }

    /// Draws a batch, and checks each item against the candidates of the model before the draw.
    fn sample(&mut self, draws: usize) -> Result<(), TestCaseError> {
        let mut batch = Vec::new();
        self.table.draw(draws, &mut self.rng, &mut batch);
        for drawn in &batch {
            let candidates = self.model.candidates();
            let key = ItemKey { trajectory: drawn.trajectory.id(), ply: drawn.ply() };
            let found = candidates.iter().find(|candidate| candidate.key == key);
            let expected = found.map_or(0.0, |candidate| candidate.probability);
            prop_assert!(expected > 0.0, "{} was drawn and could not be: {:?}", key, candidates);
            let error = (drawn.probability / expected - 1.0).abs();
            prop_assert!(error <= 1e-12, "{} had {} and not {}", key, drawn.probability, expected);
            prop_assert_eq!(drawn.table_items, candidates.len() as u64);
            prop_assert_eq!(drawn.weights_version, drawn.trajectory.last_weights_version());
            self.limiter.sample(1);
        }
        if batch.len() < draws {
            // No item may be drawn: there are no candidates, or all weights are zero and the shares are NaN.
            let candidates = self.model.candidates();
            prop_assert!(candidates.iter().all(|candidate| candidate.probability.is_nan()), "{:?}", candidates);
        }
        self.check()
    }

    fn count_quarantine(&mut self, answer: QuarantineChange) {
        if let QuarantineChange::Changed { items } = answer {
            self.limiter.delete(items);
        }
    }

    fn count_release(&mut self, answer: QuarantineChange) {
        if let QuarantineChange::Changed { items } = answer {
            self.limiter.restore(items);
        }
    }

    fn count_removed(&mut self, removed: &[Removed]) {
        removed.iter().for_each(|removed| self.limiter.delete(removed.items));
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(State::of(&self.table), self.model.state());
        let counts = self.limiter.counts();
        prop_assert_eq!(counts.inserted - counts.deleted, self.table.items(), "what the limiter holds");
        let marks: u64 = self.table.entries.iter().map(Entry::mark_bytes).sum();
        prop_assert_eq!(self.table.mark_bytes, marks);
        Ok(())
    }

    /// Checks the tree weight of every item in the window, without a draw.
    fn check_weights(&self) -> Result<(), TestCaseError> {
        let candidates = self.model.candidates();
        let weighted = matches!(self.model.settings.selector, Selector::Prioritised { .. });
        if !weighted || candidates.is_empty() || self.table.odds(candidates.len() as u64).is_none() {
            return Ok(());
        }
        let Some(tree) = &self.table.tree else { return Ok(()) };
        let older = tree.items() - candidates.len() as u64;
        let sum = tree.sum(tree.nth(older));
        let shares = (older..tree.items()).map(|rank| tree.weight(tree.nth(rank)) / sum);
        let mut total = 0.0;
        for (candidate, share) in candidates.iter().zip(shares) {
            let error = (share - candidate.probability).abs();
            prop_assert!(error <= 1e-12 * candidate.probability + 1e-150, "{:?} has {}", candidate, share);
            total += share;
        }
        prop_assert!((total - 1.0).abs() < 1e-12, "the probabilities sum to {}", total);
        Ok(())
    }
}

fn check_history(settings: TableSettings, events: Vec<Event>) -> Result<(), TestCaseError> {
    let mut pair = Pair::new(settings);
    for event in events {
        pair.apply(event)?;
        pair.check_weights()?;
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_table_agrees_with_a_list_after_any_sequence_of_events(
        settings in settings(), events in prop::collection::vec(event(), 1..80),
    ) {
        check_history(settings, events)?;
    }

    /// As above, but with constant settings, to test each selector over long sequences.
    #[test]
    fn the_table_agrees_with_a_list_under_constant_settings(
        settings in settings(), events in prop::collection::vec(event(), 1..160),
    ) {
        let stays = |event: &Event| !matches!(event, Event::Change(_));
        check_history(settings, events.into_iter().filter(stays).collect())?;
    }
}

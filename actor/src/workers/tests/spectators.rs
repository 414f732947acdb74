//! Snapshots of games in progress.

use ::metrics::{Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use experience::StepKind;
use selfplay::SubtreeReuse;
use service::live::Snapshot;

use super::*;

/// The value of the counter of snapshots.
#[derive(Default)]
struct Made(AtomicUsize);

impl CounterFn for Made {
    fn increment(&self, value: u64) {
        self.0.fetch_add(usize::try_from(value).unwrap(), Ordering::Relaxed);
    }

    fn absolute(&self, _: u64) {
        unreachable!("snapshots are added");
    }
}

/// Records this counter and no other metric.
struct Recording(Arc<Made>);

impl Recorder for Recording {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let is_wanted = key.name() == "zerofleet_actor_live_snapshots_total";
        if is_wanted { Counter::from_arc(Arc::clone(&self.0)) } else { Counter::noop() }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Runs a test with the counter of snapshots.
fn counting(test: impl FnOnce(&dyn Fn() -> usize)) {
    let made = Arc::<Made>::default();
    let recording = Recording(Arc::clone(&made));
    ::metrics::with_local_recorder(&recording, || test(&|| made.0.load(Ordering::Relaxed)));
}

/// Returns a bench in which no slot plays two moves in a round, because each search evaluates a new root.
fn bench_of_single_moves() -> Bench {
    let mut bench = bench(|_, _| Ok(()));
    let settings = selfplay::Settings { subtree_reuse: SubtreeReuse::Discard, ..selfplay() };
    bench.worker.play = Play::new(TicTacToe::new(), settings, 1.0, SEED);
    bench.publish(1);
    bench
}

#[test]
fn a_listener_sees_every_search_of_the_shown_games_in_order_with_the_recorded_numbers() {
    counting(|made| {
        let mut bench = bench_of_single_moves();
        bench.play(20);
        let mut listening = bench.live.listen().unwrap();
        let numbers = [0, 1].map(|slot| bench.worker.play.progress(slot).number);
        let mut snapshots: Vec<Snapshot> = Vec::new();
        for _ in 0..1_000 {
            bench.play(1);
            while snapshots.len() < made() {
                snapshots.push(bench.runtime.block_on(within(listening.snapshot())).unwrap());
            }
        }
        bench.worker.hand_over().unwrap();
        let Bench { worker, weights: _weights, finished, .. } = bench;
        drop(worker);
        let mut compared = 0;
        for episode in received(finished).iter().filter(|it| it.slot < 2 && it.number > numbers[it.slot]) {
            let is_of_episode = |it: &&Snapshot| (it.place, it.episode) == (episode.slot, episode.number);
            let seen: Vec<&Snapshot> = snapshots.iter().filter(is_of_episode).collect();
            let steps = episode.steps.iter().enumerate();
            let searched: Vec<_> = steps.filter(|(_, step)| step.kind != StepKind::Opening).collect();
            assert_eq!(seen.len(), searched.len());
            for (seen, (ply, step)) in seen.iter().zip(searched) {
                let before: Vec<u16> = episode.steps[..ply].iter().map(|step| step.action.0).collect();
                assert_eq!((&seen.actions, seen.plies, seen.played), (&before, ply, step.action.0));
                assert_eq!((Some(seen.value), seen.weights_version), (step.kind.value(), 1));
                assert_eq!(seen.top.len(), 9 - ply, "every legal action");
                assert!(seen.top.is_sorted_by(|one, other| one.visits >= other.visits));
                compared += 1;
            }
        }
        assert!(compared > 50, "{compared} searches");
    });
}

#[test]
fn nothing_is_made_without_listeners() {
    counting(|made| {
        let mut bench = bench_of_single_moves();
        bench.play(200);
        assert_eq!(made(), 0);
        drop(bench.live.listen().unwrap());
        bench.play(200);
        assert_eq!(made(), 0);
        let _listening = bench.live.listen().unwrap();
        bench.play(200);
        assert!(made() > 0);
    });
}

#[test]
fn a_listener_that_reads_nothing_delays_no_game_and_a_game_has_few_snapshots_in_a_second() {
    counting(|made| {
        let mut bench = bench_of_single_moves();
        let _listening = bench.live.listen().unwrap();
        bench.play(2_000);
        let all = made();
        // Snapshots are not due again before the end of the test.
        bench.worker.spectators.interval = Duration::from_secs(3_600);
        bench.play(500);
        assert!(all > 64, "{all}");
        assert_eq!(made(), all);
    });
}

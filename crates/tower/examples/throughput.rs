//! Evaluations/s of every path on this machine, and the share of what its instructions can do.
//!
//! `cargo run --release --package tower --example throughput -- [THREADS] [BLOCKSxCHANNELS@HEIGHTxWIDTH ...]`

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::print_stdout)]

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use game::{Action, ObservationShape};
use inference::{Batch, Evaluator, Predictions};
use tower::{Path, Tower, TowerEvaluator};
use weights::{Architecture, WeightsVersion};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let threads: usize = arguments.first().map_or(1, |threads| threads.parse().expect("a number of threads"));
    let networks: Vec<&str> = match &arguments[1.min(arguments.len())..] {
        [] => vec!["4x64@6x7", "6x64@6x7", "6x128@9x9", "10x128@19x19", "20x256@19x19"],
        networks => networks.iter().map(String::as_str).collect(),
    };
    for path in Path::ALL.into_iter().filter(|path| path.is_available()) {
        let peak = rate(threads, |_| 1.0, |_| path.burst(1_000_000) as f64);
        println!("{path}: peak {:.0} GFLOP/s, {threads} threads", 2.0 * peak / 1e9);
        for network in &networks {
            let architecture = parse(network);
            let tower = Arc::new(Tower::random(&architecture, 1, path).expect("a network"));
            for positions in [1, 8, 32, 128] {
                let speed = rate(
                    threads,
                    |_| {
                        let batch = batch(&architecture, positions);
                        (TowerEvaluator::new(Arc::clone(&tower), WeightsVersion(1)), batch, Predictions::new())
                    },
                    |(evaluator, batch, predictions)| {
                        evaluator.evaluate(batch, predictions).expect("an answer");
                        positions as f64
                    },
                );
                let share = 100.0 * speed * tower.multiply_adds() as f64 / peak;
                println!("  {network} batch {positions:3}: {speed:9.0} evaluations/s, {share:.1} % of peak");
            }
        }
    }
}

/// Units/s over all threads.
fn rate<S>(threads: usize, start: impl Fn(usize) -> S + Sync, round: impl Fn(&mut S) -> f64 + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let run = |index| {
        let mut state = start(index);
        round(&mut state);
        barrier.wait();
        let (begin, mut units) = (Instant::now(), 0.0);
        while begin.elapsed() < Duration::from_millis(700) {
            units += round(&mut state);
        }
        units / begin.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..threads).map(|index| scope.spawn(move || run(index))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a speed")).sum()
    })
}

fn parse(network: &str) -> Architecture {
    let numbers: Vec<usize> = network.split(['x', '@']).map(|number| number.parse().expect("a number")).collect();
    let [blocks, channels, height, width] = numbers[..] else {
        panic!("{network} is not BLOCKSxCHANNELS@HEIGHTxWIDTH")
    };
    Architecture {
        game: "benchmark".to_owned(),
        planes: 3,
        height,
        width,
        actions: if height == width { height * width + 1 } else { width },
        channels,
        blocks,
        squeeze_excitation: 0,
        global_pooling: 0,
    }
}

fn batch(architecture: &Architecture, positions: usize) -> Batch {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let mut batch = Batch::new(ObservationShape { planes, height, width });
    let legal: Vec<Action> = (0..actions as u16).map(Action).collect();
    for position in 0..positions {
        batch.push(&legal, |cells| {
            for (index, cell) in cells.iter_mut().enumerate() {
                *cell = f32::from((index * index + position).is_multiple_of(5));
            }
        });
    }
    batch
}

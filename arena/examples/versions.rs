//! Which of two weights versions of Connect Four plays better: a match with the CPU kernel.
//!
//! `cargo run --release --package arena --example versions -- runs/ONE/weights/v000181 runs/OTHER/weights/v000181 [OPENINGS]`

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::print_stdout,
    reason = "a measurement reads its arguments and prints"
)]

mod duel;

use std::time::Instant;

use anyhow::Context as _;
use games::ConnectFour;
use network_cpu::{Kernel, Precision, TowerEvaluator, fastest_first};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ([one, other], openings) = match arguments.as_slice() {
        [one, other] => ([one, other], 500),
        [one, other, openings] => ([one, other], openings.parse().context("a number of openings")?),
        _ => anyhow::bail!("name two weights versions, such as runs/NAME/weights/v000181"),
    };
    println!("{one} against {other}, seed {}", duel::SEED);
    duel::play(&ConnectFour::new(), [&mut evaluator(one)?, &mut evaluator(other)?], openings)
}

fn evaluator(stem: &str) -> anyhow::Result<TowerEvaluator> {
    let (manifest, bytes) = duel::read(stem)?;
    Ok(Kernel::new(fastest_first(&mut Instant::now), Precision::Bf16).evaluator(&manifest, &bytes)?)
}

//! Plays a match between two weights versions of Connect Four with the CPU kernel, under pUCT with a `c_init` for
//! each, by default 1.25. Given one version twice, it compares two settings of the search.
//!
//! `cargo run --release --package strength --example versions -- runs/ONE/weights/v000181 runs/OTHER/weights/v000181
//! [OPENINGS [C_INIT C_INIT]]`

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
use inference::PrecisionPreference;
use network_cpu::{Kernel, TowerEvaluator, fastest_first};
use selfplay::SearchSettings;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [one, other, rest @ ..] = arguments.as_slice() else {
        anyhow::bail!("pass two weights versions, such as runs/NAME/weights/v000181")
    };
    let openings = rest.first().map_or(Ok(500), |openings| openings.parse()).context("parse the number of openings")?;
    let mut searches = [SearchSettings::default(), SearchSettings::default()];
    for (search, c_init) in searches.iter_mut().zip(rest.iter().skip(1)) {
        search.c_init = c_init.parse().context("parse c_init")?;
    }
    let [c_init, other_c_init] = [0, 1].map(|i: usize| searches[i].c_init);
    println!("{one} with c_init {c_init} against {other} with c_init {other_c_init}, seed {}", duel::SEED);
    duel::play(&ConnectFour::new(), [&mut evaluator(one)?, &mut evaluator(other)?], searches, openings)
}

fn evaluator(stem: &str) -> anyhow::Result<TowerEvaluator> {
    let (manifest, bytes) = duel::read(stem)?;
    Ok(Kernel::new(fastest_first(&mut Instant::now), PrecisionPreference::Bf16).evaluator(&manifest, &bytes)?)
}

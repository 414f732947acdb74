//! Measures the effect of lower precision: compares a path of the CPU kernel, by default the fastest, with the
//! portable float32 path. It uses trained weights of Connect Four on all solved positions, and in a match with
//! another path, by default the fastest float32 path. Int8 is calibrated on every tenth position.
//!
//! `cargo run --release --package strength --example kernel_paths -- runs/NAME/weights/v000181 [OPENINGS] [PATH]
//! [OPPONENT]`

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::print_stdout,
    reason = "a measurement reads its arguments and prints"
)]

mod duel;

use std::time::Instant;

use anyhow::Context as _;
use game::Game;
use games::ConnectFour;
use inference::{Batch, Evaluator, PrecisionPreference, Predictions};
use network_cpu::{Drift, Kernel, KernelVariant, Tower, TowerEvaluator, fastest_first};
use strength::solved;
use weights::Manifest;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let stem = arguments.next().context("pass a weights version, such as runs/NAME/weights/v000181")?;
    let openings =
        arguments.next().map_or(Ok(500), |openings| openings.parse()).context("parse the number of openings")?;
    let (manifest, bytes) = duel::read(&stem)?;
    let mut path = || -> anyhow::Result<Option<KernelVariant>> {
        arguments.next().map(|path| path.parse()).transpose().map_err(|reason: String| anyhow::anyhow!(reason))
    };
    let (path, opponent) = (path()?, path()?);
    let game = ConnectFour::new();
    let batch = solved_positions(&game)?;
    let mut wide = match path {
        Some(path) if path.is_int8() => integers(&manifest, &bytes, path, &batch)?,
        path => {
            let paths = path.map_or_else(|| fastest_first(&mut Instant::now), |path| vec![path]);
            Kernel::new(paths, PrecisionPreference::Bf16).evaluator(&manifest, &bytes)?
        }
    };
    let mut plain =
        Kernel::new(vec![KernelVariant::PortableF32], PrecisionPreference::F32).evaluator(&manifest, &bytes)?;
    println!("{} against {}, seed {}", wide.attributes().name, plain.attributes().name, duel::SEED);
    compare_answers(&batch, &mut wide, &mut plain)?;
    let float32 = || KernelVariant::ALL.into_iter().filter(|path| path.is_available() && !path.is_bf16()).collect();
    let paths = opponent.map_or_else(float32, |path| vec![path]);
    let mut opponent = Kernel::new(paths, PrecisionPreference::Bf16).evaluator(&manifest, &bytes)?;
    println!("the opponent is {}", opponent.attributes().name);
    duel::play(&game, [&mut wide, &mut opponent], Default::default(), openings)
}

/// Converts the version to int8, calibrated on every tenth position.
fn integers(manifest: &Manifest, bytes: &[u8], path: KernelVariant, batch: &Batch) -> anyhow::Result<TowerEvaluator> {
    let architecture = &manifest.architecture;
    let observations: Vec<f32> =
        (0..batch.len()).step_by(10).flat_map(|index| batch.observation(index)).copied().collect();
    let ranges = Tower::new(architecture, bytes, KernelVariant::PortableF32)?.ranges(&observations);
    let tower = Tower::quantised(architecture, bytes, path, &ranges)?;
    Ok(TowerEvaluator::new(tower.into(), manifest.version))
}

fn solved_positions(game: &ConnectFour) -> anyhow::Result<Batch> {
    let positions = solved::bundled(game).context("find the bundled solved positions")?;
    let mut batch = Batch::new(game.spec().observation);
    let mut legal = Vec::new();
    for solved in &positions {
        let position = solved.position(game);
        game.legal_actions(&position, &mut legal);
        batch.push(&legal, |planes| game.observe(&position, planes));
    }
    Ok(batch)
}

fn compare_answers(batch: &Batch, wide: &mut TowerEvaluator, plain: &mut TowerEvaluator) -> anyhow::Result<()> {
    let (mut got, mut exact) = (Predictions::new(), Predictions::new());
    wide.evaluate(batch, &mut got)?;
    plain.evaluate(batch, &mut exact)?;
    println!("on average over positions: {}", Drift::between(&exact, &got));
    let best = |priors: &[f32]| (0..priors.len()).max_by(|&a, &b| priors[a].total_cmp(&priors[b]));
    let (mut priors, mut policy, mut value, mut same) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for i in 0..batch.len() {
        let off = || got.priors(i).iter().zip(exact.priors(i)).map(|(got, exact)| (got - exact).abs());
        priors.extend(off());
        policy.push(off().fold(0.0, f32::max));
        value.push((got.value(i) - exact.value(i)).abs());
        same += usize::from(best(got.priors(i)) == best(exact.priors(i)));
    }
    println!("priors, difference: {}", spread(priors));
    println!("policy, largest difference of a prior: {}", spread(policy));
    println!("value (win - loss), difference: {}", spread(value));
    println!(
        "same move by the raw policy: {:.2} % of {} positions",
        100.0 * same as f64 / batch.len() as f64,
        batch.len()
    );
    Ok(())
}

fn spread(mut values: Vec<f32>) -> String {
    values.sort_by(f32::total_cmp);
    let mean = values.iter().sum::<f32>() / values.len() as f32;
    let at = |share: f64| values[((values.len() - 1) as f64 * share) as usize];
    format!("mean {mean:.5}, median {:.5}, 99 % below {:.5}, largest {:.5}", at(0.5), at(0.99), at(1.0))
}

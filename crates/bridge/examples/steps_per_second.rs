//! Compares environment steps per second through the bridge and in the vector environments of Gymnasium, in turns.
//!
//! ```sh
//! cargo run --release -p bridge --example steps_per_second -- PYTHON [COUNT [SECONDS [ROUNDS]]]
//! ```
//!
//! PYTHON has `gymnasium[box2d]` and `numpy`. Each figure is the median over the rounds.
#![allow(clippy::print_stdout, reason = "the program prints its figures")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bridge::{Bridge, Settings};
use game::{Action, Environments as _, Play, Start, Taken, mix};

const ENVIRONMENTS: [&str; 2] = ["CartPole-v1", "LunarLander-v3"];
const PROCESSES: [usize; 2] = [1, 2];

struct Setup {
    python: String,
    count: usize,
    seconds: f64,
    rounds: usize,
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, usual: usize| arguments.get(index).map_or(Ok(usual), |text| text.parse());
    let setup = Setup {
        python: arguments.first().context("the first argument is a Python interpreter")?.clone(),
        count: number(1, 64)?,
        seconds: number(2, 3)? as f64,
        rounds: number(3, 3)?,
    };
    println!("{} environments, median of {} rounds of {} s", setup.count, setup.rounds, setup.seconds);
    ENVIRONMENTS.into_iter().try_for_each(|environment| measure(environment, &setup))
}

fn measure(environment: &str, setup: &Setup) -> anyhow::Result<()> {
    let mut figures: Vec<(String, Vec<f64>)> = Vec::new();
    let mut note = |name: String, figure: f64| match figures.iter_mut().find(|(other, _)| *other == name) {
        Some((_, all)) => all.push(figure),
        None => figures.push((name, vec![figure])),
    };
    for _ in 0..setup.rounds {
        for processes in PROCESSES {
            note(format!("bridge, processes: {processes}"), through_bridge(environment, processes, setup)?);
        }
        for (name, figure) in in_python(environment, setup)? {
            note(format!("gymnasium, {name}"), figure);
        }
    }
    for (name, mut all) in figures {
        all.sort_by(f64::total_cmp);
        println!("{environment:<16} {name:<24} {:>9.0} steps/s", all[all.len() / 2]);
    }
    Ok(())
}

fn through_bridge(environment: &str, processes: usize, setup: &Setup) -> anyhow::Result<f64> {
    let folder = std::env::temp_dir().join("zerofleet-bridge");
    let settings = Settings {
        environments: setup.count,
        processes,
        python: setup.python.clone().into(),
        ..Settings::new(environment, folder)
    };
    let mut bridge = Bridge::start(settings)?;
    let mut values = vec![0.0; bridge.spec().observation.len()];
    let actions = bridge.spec().actions as u64;
    let mut starts: Vec<Start> = (0..setup.count).map(|environment| Start { environment, seed: 0 }).collect();
    let (mut plays, mut started, mut taken, mut draws) = (Vec::new(), Vec::new(), Vec::new(), 1);
    let (mut steps, mut begun) = (0, Instant::now());
    let mut is_warm = false;
    while !is_warm || begun.elapsed() < Duration::from_secs_f64(setup.seconds) {
        if !starts.is_empty() {
            bridge.begin(&starts, &mut started)?;
        }
        plays.clear();
        plays.extend((0..setup.count).map(|environment| {
            draws = mix(draws);
            Play { environment, action: Action((draws % actions) as u16) }
        }));
        bridge.step(&plays, &mut taken)?;
        starts.clear();
        for (play, taken) in plays.iter().zip(&taken) {
            bridge.observe(play.environment, &mut values);
            let Taken::Step { outcome, .. } = taken else { anyhow::bail!("an episode was lost") };
            if outcome.is_some() {
                starts.push(Start { environment: play.environment, seed: mix(draws ^ play.environment as u64) });
            }
        }
        steps += setup.count;
        if !std::mem::replace(&mut is_warm, true) {
            (steps, begun) = (0, Instant::now());
        }
    }
    Ok(steps as f64 / begun.elapsed().as_secs_f64())
}

fn in_python(environment: &str, setup: &Setup) -> anyhow::Result<Vec<(String, f64)>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/vector_environments.py");
    let mut command = Command::new(&setup.python);
    command.arg(script).args([environment, &setup.count.to_string(), &setup.seconds.to_string()]);
    let output = command.env("OMP_NUM_THREADS", "1").output().context("start Python")?;
    ensure!(output.status.success(), "the script failed: {}", String::from_utf8_lossy(&output.stderr));
    let figure = |line: &str| {
        let (name, figure) = line.split_once(' ').context("a name and a figure")?;
        Ok((name.to_owned(), figure.parse()?))
    };
    String::from_utf8(output.stdout)?.lines().map(figure).collect()
}

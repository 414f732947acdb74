//! Training with the real processes learns to play tic-tac-toe perfectly.

use std::time::Duration;

use anyhow::ensure;
use tests::{Cluster, Role, SEED, SMALL_TIC_TAC_TOE, wait_until};

const START: Duration = Duration::from_secs(240);
/// Longer than the steps take on a slow machine.
const LEARN: Duration = Duration::from_secs(1800);
/// Minimum number of training steps, far more than weights need to play perfectly by chance.
const STEPS_MIN: f64 = 300.0;
/// Maximum training steps until perfect play, and positions over which the learning rate decays: half the positions of
/// these steps. Time is no bound, since machines differ in steps per second.
const STEPS_MAX: f64 = 20_000.0;
const SCHEDULE: [&str; 2] = ["learner.schedule=positions", "learner.schedule_positions=640000"];
/// The search of the preset, and more random openings: without them one run in four ends in self-play of drawn games
/// only, and never learns the replies to rare mistakes.
const VARIETY: [&str; 4] = [
    "search.algorithm=gumbel",
    "search.gumbel_c_scale=0.25",
    "selfplay.random_opening_probability=0.9",
    "selfplay.opening_plies_max=5",
];

/// An arena measurement: the number of lost lines of play, over all lines from both sides.
struct Measured {
    version: String,
    simulations: u32,
    lost: u32,
}

/// Returns all measurements in log order. The metrics hold only the latest measurement of each kind, and do not show
/// which two belong to the same version.
fn measured(cluster: &mut Cluster) -> Vec<Measured> {
    let log = cluster.process(Role::Arena).log_text();
    let field = |line: &str, name: &str| Some(line.split_once(name)?.1.split_whitespace().next()?.to_owned());
    let read = |line: &str| {
        let version = field(line, "version=")?;
        let simulations = field(line, "simulations=")?.parse().ok()?;
        Some(Measured { version, simulations, lost: field(line, "lost=")?.parse().ok()? })
    };
    log.lines().filter(|line| line.contains("every line played")).filter_map(read).collect()
}

/// Measures play from both sides and against every reply, with the raw policy and with a search of eight simulations.
/// Eight are too few for untrained weights to play perfectly, as the same measurement of the initial weights shows.
#[test]
#[allow(clippy::print_stderr, reason = "a failed test shows its seed")]
fn tic_tac_toe_is_learnt_to_perfect_play() {
    eprintln!("seed {SEED}");
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    for (role, settings) in [
        (Role::Learner, &SCHEDULE[..]),
        (Role::Actor, &VARIETY),
        (Role::Arena, &VARIETY),
        (Role::Arena, &["arena.simulations=8"]),
    ] {
        settings.iter().for_each(|setting| cluster.process(role).argue(&["--set", setting]));
    }
    // Without an actor there is no training, so that the first measured weights are the initial weights.
    cluster.start(&[Role::Replay, Role::Learner, Role::Arena]).unwrap();
    wait_until("the initial weights are measured", START, || Ok(measured(&mut cluster).len() == 2)).unwrap();
    for Measured { version, simulations, lost } in measured(&mut cluster) {
        assert!(lost > 10, "{version}, untrained, with {simulations} simulations: lost {lost} lines only");
    }

    cluster.start(&[Role::Actor]).unwrap();
    wait_until("a version never loses, neither by itself nor with search", LEARN, || {
        let steps = cluster.metric(Role::Learner, "zerofleet_learner_steps_total").unwrap_or(0.0);
        let measured = measured(&mut cluster);
        let is_perfect = |pair: &[Measured]| {
            let simulations = [pair[0].simulations, pair[1].simulations];
            pair[0].version == pair[1].version && simulations == [0, 8] && pair.iter().all(|one| one.lost == 0)
        };
        let has_learnt = steps >= STEPS_MIN && measured.windows(2).any(is_perfect);
        ensure!(has_learnt || steps <= STEPS_MAX, "no version plays perfectly after {steps} training steps");
        Ok(has_learnt)
    })
    .unwrap();
    let lost = cluster.metric(Role::Arena, r#"zerofleet_arena_exhaustive_lost{search="search"}"#);
    assert!(lost.is_some(), "the measurement is a metric too");
}

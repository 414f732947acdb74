use std::path::Path;

use anyhow::ensure;
use games::GameKind;

use super::speeds::ScaleSpeeds;
use crate::Turn;
use crate::training_run::{self, RunArgs, Window};
use fleet::{Rating, Role};

/// The measurement of fleets of real actors.
#[derive(Debug, Clone, clap::Args)]
pub struct ScalingArgs {
    /// Numbers of actor processes; 0 measures none.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    pub scale: Vec<usize>,
    /// The game they play.
    #[arg(long, default_value = "connect_four")]
    pub game: GameKind,
    /// The time of a batch that no network evaluates.
    #[arg(long, default_value_t = 10_000)]
    pub delay_us: u64,
    /// Games of each actor, in one thread: positions of a batch.
    #[arg(long, default_value_t = 64)]
    pub games: usize,
    /// Simulations of every search.
    #[arg(long, default_value_t = 16)]
    pub simulations: u32,
    /// The time that each fleet and each rate is measured.
    #[arg(long, default_value_t = 20.0)]
    pub seconds: f64,
    /// The wait before the measurement, from the first training step on: the games of a fleet begin together.
    #[arg(long, default_value_t = 10.0)]
    pub warm_up_seconds: f64,
    /// Number of measurements of each fleet; of several the middle one counts.
    #[arg(long, default_value_t = 1)]
    pub repeats: usize,
    /// Overrides one key of the fleets' run file; may be given many times.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub sets: Vec<String>,
}

impl ScalingArgs {
    /// Sees that the numbers make sense, before minutes are spent.
    ///
    /// # Errors
    /// Names the option.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(self.repeats > 0, "--repeats must be at least 1");
        ensure!(self.games > 0 && self.simulations > 0, "--games and --simulations must be at least 1");
        self.run(1, None, 0).times().map(drop)
    }

    /// The fleets, ascending.
    fn fleets(&self) -> Vec<usize> {
        let mut fleets: Vec<usize> = self.scale.iter().copied().filter(|&actors| actors > 0).collect();
        fleets.sort_unstable();
        fleets.dedup();
        fleets
    }

    /// The smallest network: a learner that trains nearly nothing is never the limit by itself, and
    /// the report shows how busy it is.
    pub(super) const NETWORK: &str = "1x8";

    fn run(&self, actors: usize, folder: Option<&Path>, seed: u64) -> RunArgs {
        let Self { delay_us, games, simulations, .. } = self;
        let mut sets = vec![
            format!("run.seed={seed}"),
            "actor.kernel=simulated".to_owned(),
            format!("actor.simulated_delay_us={delay_us}"),
            "actor.threads=1".to_owned(),
            // An answer from memory would take no time, and there are more of them in a longer run.
            "actor.cache_positions=0".to_owned(),
            format!("selfplay.games={games}"),
            format!("selfplay.full_simulations={simulations}"),
            format!("selfplay.full_simulations_max={simulations}"),
            "network.blocks=1".to_owned(),
            "network.channels=8".to_owned(),
            // The cores are for the fleet.
            "learner.device=cpu".to_owned(),
            "replay.samples_per_insert=2.0".to_owned(),
            "replay.min_items=500".to_owned(),
        ];
        sets.extend(self.sets.iter().cloned());
        RunArgs {
            game: self.game,
            seconds: self.seconds,
            warm_up_seconds: self.warm_up_seconds,
            actors: Some(actors),
            config: None,
            sets,
            runs: folder.map(Path::to_owned),
        }
    }
}

/// Starts one fleet after the other; all of them take turns.
///
/// # Errors
/// A process that dies or is not built, a setting that makes no sense.
pub(super) fn measure(args: &ScalingArgs, folder: Option<&Path>, seed: u64) -> anyhow::Result<Vec<ScaleSpeeds>> {
    let fleets = args.fleets();
    let mut turns = vec![Vec::new(); fleets.len()];
    for _ in 0..args.repeats {
        for (turns, &actors) in turns.iter_mut().zip(&fleets) {
            let run = args.run(actors, folder, seed);
            let measured = training_run::measure_with(&run, run.times()?, Rating::Off)?;
            turns.push(scale(&measured.window, actors));
        }
    }
    let middle = |turns| Turn::Median.of(turns, |turn: &ScaleSpeeds| turn.inserts_per_second);
    let mut fleets: Vec<ScaleSpeeds> = turns.into_iter().filter_map(middle).collect();
    share_of_linear(&mut fleets);
    Ok(fleets)
}

/// Computes the speeds of a fleet from its metrics.
pub(super) fn scale(window: &Window, actors: usize) -> ScaleSpeeds {
    let per_second = |seconds: Option<f64>| seconds.map(|seconds| seconds / window.seconds);
    let cpu = |role: Role| {
        let of_role = window.processes().filter(|(_, end)| end.role == role);
        per_second(of_role.filter_map(|(begin, end)| training_run::cpu_seconds(begin, end)).reduce(|a, b| a + b))
    };
    let learner = |phase| window.growth(Role::Learner, "zerofleet_learner_seconds_total", &[("phase", phase)]);
    let waited = window.growth(Role::Actor, "zerofleet_actor_wait_seconds_total", &[("part", "replay")]);
    let inserts = window.rate(Role::Actor, "zerofleet_actor_inserted_total");
    ScaleSpeeds {
        actors,
        // An actor has no such metric before the first acknowledgement.
        inserts_per_second: inserts.unwrap_or(0.0),
        share_of_linear: f64::NAN,
        samples_per_second: window.rate(Role::Replay, "zerofleet_replay_samples_total").unwrap_or(0.0),
        cpu: per_second(window.cpu_seconds()),
        actors_cpu: cpu(Role::Actor),
        replay_cpu: cpu(Role::Replay),
        learner_cpu: cpu(Role::Learner),
        // One self-play thread each.
        held_up_share: per_second(waited).map(|share| share / actors as f64),
        insert_wait_share: window.rate(Role::Replay, "zerofleet_replay_insert_wait_seconds_total"),
        learner_busy_share: per_second(
            learner("train").zip(learner("publish")).map(|(train, publish)| train + publish),
        ),
    }
}

/// Against the smallest fleet.
pub(super) fn share_of_linear(fleets: &mut [ScaleSpeeds]) {
    let Some(first) = fleets.first() else { return };
    let of_one = first.inserts_per_second / first.actors as f64;
    for fleet in fleets {
        fleet.share_of_linear = fleet.inserts_per_second / (of_one * fleet.actors as f64);
    }
}

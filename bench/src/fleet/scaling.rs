use std::collections::BTreeSet;
use std::path::Path;

use anyhow::ensure;
use games::GameKind;

use crate::report::{Report, Unit, Value, time, value_of};
use crate::training_run::{self, RunArgs, Window};
use crate::{Turn, Turns};
use fleet::{Rating, Role};

/// Options for measuring real fleets.
#[derive(Debug, Clone, clap::Args)]
pub struct ScalingArgs {
    /// Numbers of actor processes to measure; 0 measures no fleet.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    pub scale: Vec<usize>,
    /// Game that the actors play.
    #[arg(long, default_value = "connect_four")]
    pub game: GameKind,
    /// Time per batch of the simulated evaluator, in microseconds.
    #[arg(long, default_value_t = 10_000)]
    pub delay_us: u64,
    /// Concurrent games per actor (one thread); also the batch size.
    #[arg(long, default_value_t = 64)]
    pub games: usize,
    /// Simulations per search.
    #[arg(long, default_value_t = 16)]
    pub simulations: u32,
    /// Duration of the measurement of each fleet, in seconds.
    #[arg(long, default_value_t = 20.0)]
    pub seconds: f64,
    /// Seconds between the first training step and the measurement.
    ///
    /// The warm-up is needed because all games of a fleet start at the same time.
    #[arg(long, default_value_t = 10.0)]
    pub warm_up_seconds: f64,
    /// Number of measurements per fleet; the median is reported.
    #[arg(long, default_value_t = 1)]
    pub repeats: usize,
    /// Override one key of the run file of every fleet; may be repeated.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub sets: Vec<String>,
}

impl ScalingArgs {
    /// Checks the values before minutes are spent on measuring.
    ///
    /// # Errors
    /// An option is invalid; the error names it.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(self.repeats > 0, "--repeats must be at least 1");
        ensure!(self.games > 0 && self.simulations > 0, "--games and --simulations must be at least 1");
        training_run::times(self.seconds, self.warm_up_seconds).map(drop)
    }

    /// The smallest network: a learner with so little to train is never the bottleneck. The report shows how busy the
    /// learner is.
    const NETWORK: &str = "1x8";

    fn run(&self, actors: usize, folder: Option<&Path>, seed: u64) -> RunArgs {
        let Self { delay_us, games, simulations, .. } = self;
        let mut sets = vec![
            format!("run.seed={seed}"),
            "actor.kernel=simulated".to_owned(),
            format!("actor.simulated_delay_us={delay_us}"),
            "actor.threads=1".to_owned(),
            // A cache hit would take no time, and the hit rate grows during a run.
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
            game: self.game.clone(),
            seconds: self.seconds,
            warm_up_seconds: self.warm_up_seconds,
            actors: Some(actors),
            config: None,
            sets,
            runs: folder.map(Path::to_owned),
        }
    }
}

const FLEETS: &str = "inserts by actors";
pub(super) const INSERTS_PER_SECOND: &str = "inserts/s";

/// Measures one fleet at a time; each repeat measures all sizes in turn.
///
/// # Errors
/// A process dies or is not built, or a setting is invalid.
pub(super) fn measure(args: &ScalingArgs, folder: Option<&Path>, seed: u64, report: &mut Report) -> anyhow::Result<()> {
    let fleets: BTreeSet<usize> = args.scale.iter().copied().filter(|&actors| actors > 0).collect();
    let turns = Turns { seconds: args.seconds, repeats: args.repeats, turn: Turn::Median, seed };
    let measure = |actors: &mut usize, _| -> anyhow::Result<Vec<Value>> {
        let measured = training_run::measure(&args.run(*actors, folder, seed), Rating::Off, |_| Ok(()))?;
        Ok(scale(&measured.window, *actors))
    };
    let measured = turns.each(fleets, measure, |values: &Vec<Value>| inserts_per_second(values))?;
    add(report, args, &measured);
    Ok(())
}

/// Adds the speeds of fleets, by number of actors.
pub(super) fn add(report: &mut Report, args: &ScalingArgs, fleets: &[(usize, Vec<Value>)]) {
    let Some((fewest, smallest)) = fleets.first() else { return };
    let ScalingArgs { game, delay_us, games, simulations, seconds, warm_up_seconds, repeats, .. } = args;
    report.set("game", game);
    report.set("simulated evaluator", time(*delay_us as f64));
    report.set("games per actor", games);
    report.set("simulations", simulations);
    let sets: String = args.sets.iter().map(|set| format!(", {set}")).collect();
    report.note(format!(
        "fleets are real processes; each actor has one thread; the learner trains {}{sets}; {seconds} s, {warm_up_seconds} s \
         after the first training step; the median of {repeats}",
        ScalingArgs::NETWORK
    ));
    let of_one = inserts_per_second(smallest) / *fewest as f64;
    for (actors, speeds) in fleets {
        let share_of_linear = inserts_per_second(speeds) / (of_one * *actors as f64);
        report
            .at(FLEETS, &[("actors", actors)])
            .values(&speeds[..1])
            .value("share of linear", Unit::Share, share_of_linear)
            .values(&speeds[1..]);
    }
    report.plot(FLEETS, INSERTS_PER_SECOND, Some("actors"), None);
}

fn inserts_per_second(speeds: &[Value]) -> f64 {
    value_of(speeds, INSERTS_PER_SECOND).unwrap_or(f64::NAN)
}

/// Computes the speeds of a fleet from its metrics, inserts/s first.
pub(super) fn scale(window: &Window, actors: usize) -> Vec<Value> {
    let per_second = |seconds: Option<f64>| seconds.map(|seconds| seconds / window.seconds);
    let cpu = |role| per_second(window.sum(role, |process| process.cpu_seconds()));
    let metrics = window.metrics();
    let learner = |phase| metrics.rate(Role::Learner, "seconds_total", &[("phase", phase)]);
    // In the remaining time, the learner waits for samples.
    let learner_busy = learner("train").zip(learner("publish")).map(|(train, publish)| train + publish);
    // A share of the time of the self-play threads, one per actor.
    let held_up = metrics.rate(Role::Actor, "wait_seconds_total", &[("part", "replay")]);
    let held_up = held_up.map(|share| share / actors as f64);
    // An actor has no such metric before the first acknowledgement.
    let inserts = metrics.rate(Role::Actor, "inserted_total", &[]).unwrap_or(0.0);
    let samples = metrics.rate(Role::Replay, "samples_total", &[]).unwrap_or(0.0);
    let insert_wait = metrics.rate(Role::Replay, "insert_wait_seconds_total", &[]);
    vec![
        (INSERTS_PER_SECOND, Unit::PerSecond, Some(inserts)),
        ("samples/s", Unit::PerSecond, Some(samples)),
        ("cores of all", Unit::Cores, per_second(window.cpu_seconds())),
        ("cores of actors", Unit::Cores, cpu(Role::Actor)),
        ("cores of replay", Unit::Cores, cpu(Role::Replay)),
        ("cores of learner", Unit::Cores, cpu(Role::Learner)),
        ("self-play waits for replay", Unit::Share, held_up),
        ("limiter delays inserts", Unit::Share, insert_wait),
        ("learner busy", Unit::Share, learner_busy),
    ]
}

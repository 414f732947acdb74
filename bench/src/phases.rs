//! `zerofleet bench phases`: the time of a real training run by phase, with bottleneck, cost of a longer run, and
//! devices of the data.
//!
//! It starts the processes of `zerofleet train` in a temporary directory, waits until the learner trains, and reads the
//! metrics at the start and the end of a time window. The shares are computed from the differences. Nothing is traced:
//! processes add up phases themselves, a few times per batch. Start with [`measure`]; `shares` computes the figures of
//! the run, `placement` lists the devices.

mod placement;
mod shares;

use anyhow::{Context, ensure};
use fleet::{Fleet, Rating, Role};
use run_metrics::DeviceUse;
use run_metrics::bottleneck::{Load, bottleneck};

use crate::machine;
use crate::replay::games::Games;
use crate::replay::load;
use crate::report::{Report, Value, bytes, number, percent, value_of};
use crate::training_run::{self, Measured, RunArgs};

/// Settings of a run with a full replay server, a rate limiter that never blocks, and an actor that evaluates one
/// position in ten seconds. All drawn items are used for training, and the learner only trains.
const FULL: [&str; 9] = [
    "actor.kernel=simulated",
    "actor.simulated_delay_us=10000000",
    "actor.threads=1",
    "selfplay.games=1",
    "replay.min_items=1",
    "replay.samples_per_insert=1.0",
    "replay.error_items=1e15",
    "learner.device=cpu",
    "learner.validation_share=0",
];
/// Positions in a full replay server.
const FULL_POSITIONS: u64 = 200_000;

/// Options of `zerofleet bench phases`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Options of the run, and the duration of the measurement.
    #[command(flatten)]
    pub run: RunArgs,
    /// Numbers of self-play processes [default: depends on the cores].
    ///
    /// Phases are those of the first run. With several numbers, the inserts of all runs are compared.
    #[arg(long, value_delimiter = ',')]
    pub actors: Vec<usize>,
    /// Train without an arena.
    #[arg(long)]
    pub no_arena: bool,
    /// Number of epochs for which to predict time and cost.
    ///
    /// In an epoch, the number of training positions equals the number of positions in the replay window.
    #[arg(long, default_value_t = 10.0)]
    pub epochs: f64,
    /// Price per hour of this machine, in any currency.
    #[arg(long, value_name = "PRICE")]
    pub price_per_hour: Option<f64>,
    /// Also report the device of each kind of data.
    ///
    /// With an accelerator, a second run on the CPU is measured for comparison.
    #[arg(long)]
    pub placement: bool,
    /// Measure a learner with a full replay server of Connect Four.
    ///
    /// The server holds 200,000 positions from the start, the rate limiter never blocks, and one actor hardly plays.
    #[arg(long, conflicts_with_all = ["game", "actors", "placement"])]
    pub full_replay: bool,
}

/// Trains and returns the report.
///
/// # Errors
/// An option is invalid, or a process dies.
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    check(args)?;
    let measured = measure_run(args, args.actors.first().copied(), &[])?;
    let mut report = report(args, &measured);
    if args.placement {
        add_placement(&mut report, args, &measured)?;
    }
    if args.actors.len() > 1 {
        let further = args.actors[1..].iter().map(|&actors| measure_run(args, Some(actors), &[]));
        let all = [Ok(measured)].into_iter().chain(further).collect::<anyhow::Result<Vec<_>>>()?;
        shares::add_fleets(&mut report, &all);
        report.plot(FLEETS, INSERTS, Some("actors"), None);
    }
    Ok(report)
}

/// Measures a run with a number of self-play processes and further settings.
fn measure_run(args: &Args, actors: Option<usize>, sets: &[&str]) -> anyhow::Result<Measured> {
    let rating = if args.no_arena || args.full_replay { Rating::Off } else { Rating::On };
    let actors = if args.full_replay { Some(1) } else { actors };
    training_run::measure(&run(args, sets), actors, rating, |fleet| if args.full_replay { fill(fleet) } else { Ok(()) })
}

/// Returns the options of the run with further settings.
fn run(args: &Args, sets: &[&str]) -> RunArgs {
    let mut run = args.run.clone();
    let full: &[&str] = if args.full_replay { &FULL } else { &[] };
    let given = std::mem::take(&mut run.settings.sets).into_iter();
    let [full, sets] = [full, sets].map(|sets| sets.iter().map(|set| (*set).to_owned()));
    run.settings.sets = full.chain(given).chain(sets).collect();
    run
}

/// Fills the replay server of a run.
fn fill(fleet: &Fleet) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    let endpoint = format!("http://{}", fleet.replay()[0]);
    runtime.block_on(load::fill(&endpoint, &Games::new(1), FULL_POSITIONS))
}

/// Adds the devices of a run and, with an accelerator, the rates of a second run on the CPU alone.
fn add_placement(report: &mut Report, args: &Args, measured: &Measured) -> anyhow::Result<()> {
    if placement::add(report, measured) {
        let measured = measure_run(args, args.actors.first().copied(), &placement::ON_THE_CPU)?;
        report.at(RATES, &[("run", &"all on the CPU")]).values(&shares::rates(&measured.window.metrics()));
    }
    Ok(())
}

/// Checks the options that are not checked elsewhere.
fn check(args: &Args) -> anyhow::Result<()> {
    for (name, value) in [("--epochs", args.epochs), ("--price-per-hour", args.price_per_hour.unwrap_or(0.0))] {
        ensure!(value.is_finite() && value >= 0.0, "{name} must be at least 0");
    }
    ensure!(!args.actors.contains(&0), "every number in --actors must be at least 1");
    training_run::times(args.run.seconds, args.run.warm_up_seconds).map(drop)
}

/// Computes the report of a run.
fn report(args: &Args, measured: &Measured) -> Report {
    let Measured { config, actors, window, .. } = measured;
    let metrics = window.metrics();
    let rates = shares::rates(&metrics);
    let mut report = describe(&args.run, measured);
    if args.full_replay {
        report.note(format!("replay server with {FULL_POSITIONS} positions from the start, {}", FULL.join(", ")));
    }
    report.note(format!("transfers: {}", shares::transfers(window)));
    shares::add_phases(&mut report, window, actors * config.actor.threads);
    shares::add_processes(&mut report, window);
    report.at(RATES, &[("run", &"the run")]).values(&rates);
    report.plot(PHASES, SHARE, None, Some("threads"));
    let cores_used = window.cpu_seconds().map(|cpu| cpu / (window.seconds * machine::cores() as f64));
    let found = Load::of(&metrics).map(|load| bottleneck(&Load { cores_used, ..load }));
    report.findings.extend(found.map(|found| format!("**{}** {}", found.sentence, found.remedy)));
    report.finding(cost(args, config.replay.main.window_items_min, &rates));
    report
}

/// Describes time and price of epochs at the measured speed. An epoch is as many positions as the window holds, and at
/// least the configured size, which a full table reaches.
fn cost(args: &Args, window_items_min: u64, rates: &[Value]) -> String {
    let of = |metric| value_of(rates, metric);
    let epoch_positions = of("window items").unwrap_or(0.0).max(window_items_min as f64);
    let what = format!("{} epochs of {epoch_positions:.0} training positions", args.epochs);
    let Some(rate) = of("positions trained on/s").filter(|rate| *rate > 0.0) else {
        return format!("{what}: unknown, since nothing was trained on.");
    };
    let hours = args.epochs * epoch_positions / rate / 3600.0;
    let mut text = format!("{what} take {hours:.2} hours at this speed");
    if let Some(moves) = of("moves/s") {
        text += &format!(", in which self-play makes {} moves", number(hours * 3600.0 * moves));
    }
    if let Some(per_hour) = args.price_per_hour {
        text += &format!(", and cost {:.2} at {per_hour} per hour", hours * per_hour);
    }
    text + "."
}

const RATES: &str = "rates";
const PHASES: &str = "phases";
const FLEETS: &str = "inserts by actors";
const INSERTS: &str = "inserts/s";
const SHARE: &str = "share of the threads' time";

/// Creates a report without rows that describes a run: settings, devices and duration.
fn describe(run: &RunArgs, measured: &Measured) -> Report {
    let Measured { config, actors, window, accelerators } = measured;
    let mut report = Report::new("phases", "Where the time of a run goes");
    let metrics = window.metrics();
    let label = |role, name, label| metrics.label(role, name, label).unwrap_or("unknown");
    let sets: String = run.settings.sets.iter().map(|set| format!(", {set}")).collect();
    report.note(format!(
        "run: {}, network {}x{}, {actors} actor(s) of {} thread(s), learner of {} thread(s){sets}",
        run.game, config.network.blocks, config.network.channels, config.actor.threads, config.learner.threads
    ));
    report.note(format!(
        "self-play evaluates with {}; the learner trains on {}, {}, by {}",
        label(Role::Actor, "evaluator", "evaluator"),
        label(Role::Learner, "device", "device"),
        label(Role::Learner, "device", "precision"),
        label(Role::Learner, "device", "backend"),
    ));
    report
        .note(format!("measured: {:.1} s, {:.0} s after the first training step", window.seconds, run.warm_up_seconds));
    for DeviceUse { device, name, busy_share, memory_used_bytes, .. } in accelerators {
        let memory = memory_used_bytes.map_or_else(|| "unknown memory".to_owned(), bytes);
        let (name, busy) = (name.as_ref().unwrap_or(device), percent(*busy_share));
        report.note(format!("accelerator: {name}, busy {busy} of the time, {memory} in use"));
    }
    if accelerators.is_empty() {
        report.note("accelerator: none in use");
    }
    report
}

#[cfg(test)]
mod tests {
    use run_file::RunFile;

    use super::*;
    use crate::report::Unit;
    use crate::tests::{args, parsed};
    use crate::training_run::tests::{actor, learner, usage, window};

    /// Returns the report of ten seconds in which self-play threads evaluated and the learner waited for eight.
    fn report(line: &str) -> Report {
        let scrape = |seconds: f64, positions: f64| {
            let mut actor = actor(&format!(
                "zerofleet_actor_seconds_total{{phase=\"evaluate\"}} {seconds}\nzerofleet_actor_moves_total {positions}\n\
             zerofleet_actor_evaluator{{evaluator=\"CPU kernel\"}} 3"
            ));
            actor.usage = Some(usage(&[(1, "selfplay-0", seconds)]));
            let learner = learner(&format!(
                "zerofleet_learner_positions_total {}\n\
             zerofleet_learner_device{{device=\"cpu\",precision=\"bf16\",backend=\"CPU kernels\"}} 1\n\
             zerofleet_learner_seconds_total{{phase=\"wait\"}} {seconds}\n\
             zerofleet_learner_seconds_total{{phase=\"train\"}} {}",
                positions * 4.0,
                seconds / 4.0
            ));
            vec![actor, learner]
        };
        let mut config = RunFile::default();
        (config.actor.threads, config.replay.main.window_items_min) = (2, 72_000);
        let window = window(10.0, scrape(1.0, 100.0), scrape(9.0, 1100.0));
        let measured = Measured { config, actors: 1, window, accelerators: Vec::new() };
        super::report(&args(line), &measured)
    }

    const LINE: &str = "--epochs 2 --price-per-hour 5 --game tic_tac_toe --set learner.threads=1";

    #[test]
    fn a_run_becomes_a_report() {
        let report = report(LINE);
        let share = |threads, phase| report.value(PHASES, &[("threads", threads), ("phase", phase)], SHARE);
        assert_eq!(share("self-play", "evaluation"), Some(0.4));
        assert_eq!(report.value("rates", &[], "positions trained on/s"), Some(400.0));
        assert_eq!(report.value("processes", &[("process", "actor-0")], "CPU time"), Some(8e6));
        assert_eq!(
            report.value("processes", &[("process", "learner")], "CPU time"),
            None,
            "the system does not report it"
        );
        let text = report.markdown();
        for cost_text in [
            "run: tic_tac_toe, network ",
            ", learner.threads=1\n",
            "self-play evaluates with CPU kernel; the learner trains on cpu, bf16, by CPU kernels\n",
            "- transfers: none: the learner trains on the CPU",
            "- accelerator: none in use\n",
            "\n**Self-play is the bottleneck: the learner waits 80 % of the time",
            "\n2 epochs of 72000 training positions take 0.10 hours at this speed, in which self-play makes ",
            ", and cost 0.50 at 5 per hour.\n",
        ] {
            assert!(text.contains(cost_text), "{cost_text}: {text}");
        }
    }

    #[test]
    fn the_settings_of_a_full_replay_server_are_keys_of_the_run_file_and_yield_to_those_of_the_user() {
        let args: Args = args("--full-replay --set learner.prepare_threads=2 --set learner.validation_share=0.5");
        let sources =
            service::config::Sources { file: None, env: std::iter::empty(), sets: run(&args, &[]).settings.sets };
        let config: RunFile = sources.read(games::preset).unwrap().load().unwrap();
        assert_eq!((config.learner.prepare_threads, config.learner.validation_share), (2, 0.5));
        config.check_settings().unwrap();
    }

    #[test]
    fn shares_of_two_runs_are_compared() {
        let mut now = report(LINE);
        now.compare("before.json".as_ref(), &report("--game tic_tac_toe"));
        assert!(now.markdown().contains("| self-play | evaluation | 40.0 % (+0.0 points) |"), "{}", now.markdown());
    }

    #[test]
    fn accelerators_are_listed_with_their_use_and_memory() {
        let (device, name) = ("cuda".to_owned(), Some("A".to_owned()));
        let idle = DeviceUse { device, name, ..DeviceUse::default() };
        let busy = DeviceUse { busy_share: Some(0.25), memory_used_bytes: Some(3e6), ..idle.clone() };
        let accelerators = vec![busy, idle];
        let window = window(1.0, Vec::new(), Vec::new());
        let measured = Measured { config: RunFile::default(), actors: 1, window, accelerators };
        let text = describe(&args::<Args>("").run, &measured).markdown();
        assert!(text.contains("\n- accelerator: A, busy 25.0 % of the time, 3.00 MB in use\n"), "{text}");
        assert!(text.contains("\n- accelerator: A, busy – of the time, unknown memory in use\n"), "{text}");
    }

    /// Describes the cost of epochs of 100 000 positions at `rate` trained positions per second.
    fn costs(line: &str, rate: Option<f64>, window_items: Option<f64>) -> String {
        let rates = [
            ("positions trained on/s", Unit::PerSecond, rate),
            ("moves/s", Unit::PerSecond, Some(500.0)),
            ("window items", Unit::Count, window_items),
        ];
        cost(&args(line), 100_000, &rates)
    }

    #[test]
    fn epochs_take_their_positions_at_the_speed_of_training() {
        let expected = "36 epochs of 100000 training positions take 0.50 hours at this speed, in which self-play makes \
                        900000 moves, and cost 1.50 at 3 per hour.";
        assert_eq!(costs("--epochs 36 --price-per-hour 3", Some(2000.0), None), expected);
    }

    #[test]
    fn without_a_price_no_cost_is_reported() {
        let cost_text = costs("--epochs 36", Some(2000.0), None);
        assert!(cost_text.contains("0.50 hours") && !cost_text.contains("cost"), "{cost_text}");
    }

    #[test]
    fn without_trained_positions_the_time_of_an_epoch_is_unknown() {
        for rate in [None, Some(0.0)] {
            let cost_text = costs("--epochs 1 --price-per-hour 3", rate, None);
            assert_eq!(cost_text, "1 epochs of 100000 training positions: unknown, since nothing was trained on.");
        }
    }

    #[test]
    fn an_epoch_is_the_window_as_it_will_be_when_the_table_is_full() {
        for (window_items, positions) in [(Some(7_000.0), 100_000), (Some(120_000.0), 120_000), (None, 100_000)] {
            let cost_text = costs("", Some(2000.0), window_items);
            assert!(cost_text.contains(&format!(" epochs of {positions} training positions")), "{cost_text}");
        }
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = |line: &str| format!("{:#}", crate::tests::run("phases", line, &mut Vec::new()).unwrap_err());
        assert!(error("--seconds 0").contains("--seconds"));
        assert!(error("--seconds=-1").contains("--seconds"));
        assert!(error("--warm-up-seconds=-1").contains("--warm-up-seconds"));
        assert!(error("--actors 1,0").contains("--actors"));
        assert!(error("--epochs=-1").contains("--epochs"));
        assert!(error("--price-per-hour NaN").contains("--price-per-hour"));
        assert!(parsed::<Args>(["--full-replay", "--placement"]).is_err());
        assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
        assert!(parsed::<Args>(["--game", "checkers"]).is_err());
    }
}

//! The command line of zerofleet: train, tune, ablate, play, gtp, gomocup, analysis, eval, match, weights, picture,
//! replay, inference, top, console, doctor, env.
//!
//! Start with [`Cli`], which dispatches to the commands. `train` supervises the processes of a run. The crate `fleet`
//! starts the processes. Supervision only uses command lines, admin ports and exit statuses, and does not depend on
//! games or networks. `tune` runs `train` many times with varied settings, and `ablate` runs pairs that differ in
//! on/off settings. The crate `run-metrics` reads the metrics of a run, `screen` shows them and `record` writes them.
//! `report` writes summary and picture of a run, both from the files of the run. `play` and `eval` use the latest
//! weights of a run, or an older version from `kept_versions`. `trained` loads weights on this machine or on an
//! inference server (`remote`), which the command may start itself (`own_server`). `engine` plays with these weights
//! over engine protocols. `weights_server` serves weights that a learner of the user writes to the directory
//! `incoming`. `matches` plays the weights of runs against each other and against other programs; `sgf` records games;
//! `watch` shows an episode of a single-player game. `replay` and `inference` send requests to live
//! servers, `top` shows a whole fleet, and `console` serves pages of a run, for which `console_thinker` searches. `env`
//! describes environments in Python. `doctor` checks this machine for a run. `bench` runs the program
//! `zerofleet-bench`. `libtorch` decides whether a run needs libtorch. `arguments` parses the command line, `csv`
//! writes tables, `printed_command` formats commands to copy, `move_names` formats moves, and `game_result` counts the
//! points of a game. `resume` checks that a run can resume, and `trained_time` counts training time. `models` finds
//! bundled models, and `initial_weights` begins a run with given weights. `export` writes a
//! weights version for other programs, with a `model_card` and the `portable` part of the run file.

mod ablate;
mod arguments;
mod bench;
mod client_security;
mod console;
mod console_thinker;
mod core_division;
mod csv;
mod deterministic;
mod doctor;
mod engine;
mod env;
mod eval;
mod export;
mod game_result;
mod incoming;
mod inference;
mod initial_weights;
mod kept_versions;
mod libtorch;
mod matches;
mod model_card;
mod models;
mod move_names;
mod own_server;
mod play;
mod portable;
mod printed_command;
mod record;
mod remote;
mod replay;
mod report;
mod resume;
mod screen;
mod sgf;
mod stall;
mod top;
mod train;
mod trained;
mod trained_time;
mod tune;
mod watch;
mod weights_server;
mod write_failures;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use service::Drain;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

/// Exit status of a program stopped by Ctrl-C, as in shells: 128 plus the signal number of SIGINT.
const EXIT_INTERRUPTED: i32 = 130;

/// Trains, evaluates and serves game-playing networks.
#[derive(Debug, clap::Parser)]
#[command(name = "zerofleet", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Train(train::Args),
    Tune(tune::Args),
    Ablate(ablate::Args),
    Play(play::Args),
    Gtp(engine::commands::GtpArgs),
    Gomocup(engine::commands::GomocupArgs),
    Analysis(engine::commands::AnalysisArgs),
    Eval(eval::Args),
    Match(matches::Args),
    #[command(subcommand)]
    Weights(kept_versions::Request),
    Bench(bench::Args),
    Picture(report::Args),
    #[command(subcommand)]
    Replay(replay::Request),
    #[command(subcommand)]
    Inference(inference::Request),
    Top(top::Args),
    Console(console::Args),
    Doctor(doctor::Args),
    #[command(subcommand)]
    Env(env::Request),
}

impl Cli {
    /// Parses the arguments of this process, and exits with a message if they are invalid.
    #[must_use]
    pub fn of_arguments() -> Self {
        arguments::parse(std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    /// Runs the command.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut out = io::stdout();
        match self.command {
            Command::Bench(args) => return args.run(),
            Command::Doctor(args) => return args.run(&mut out),
            Command::Tune(args) => return args.run(&mut out),
            Command::Analysis(args) => return args.run(),
            Command::Weights(args) => return args.run(&mut out),
            Command::Train(args) => train::run(args),
            Command::Ablate(args) => args.run(&mut out),
            Command::Play(args) => args.run(),
            Command::Gtp(args) => args.run(),
            Command::Gomocup(args) => args.run(),
            Command::Eval(args) => args.run(),
            Command::Match(args) => args.run(&mut out),
            Command::Picture(args) => args.run(),
            Command::Replay(args) => args.run(&mut out),
            Command::Inference(args) => args.run(&mut out),
            Command::Top(args) => args.run(&mut out),
            Command::Console(args) => args.run(&mut out),
            Command::Env(args) => args.run(&mut out),
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the Unix time in seconds; 0 if the clock shows a time before 1970.
fn unix_seconds() -> f64 {
    run_metrics::words::unix_seconds(std::time::SystemTime::now())
}

/// Like [`drain_on_signals`], for commands with long steps: a second signal stops the process at once.
fn drain_or_exit_on_signals() -> anyhow::Result<(Runtime, Drain)> {
    let (runtime, drain) = drain_on_signals()?;
    let listen = || -> std::io::Result<_> { Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)) };
    let (mut interrupt, mut terminate) = runtime.block_on(async { listen() }).context("listen to signals")?;
    runtime.spawn(async move {
        for is_first in [true, false] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if is_first {
                let message = "stopping after the current moves; press Ctrl-C again to stop at once";
                // If standard error is closed, only this message is lost.
                drop(writeln!(io::stderr(), "{message}"));
            }
        }
        std::process::exit(EXIT_INTERRUPTED);
    });
    Ok((runtime, drain))
}

/// Returns a drain that starts on SIGINT or SIGTERM, and the tokio runtime that handles only these signals.
fn drain_on_signals() -> anyhow::Result<(Runtime, Drain)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let drain = Drain::new();
    runtime.block_on(async { drain.on_signals() }).context("listen to signals")?;
    Ok((runtime, drain))
}

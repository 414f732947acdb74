//! The command line of zerofleet: train, play, eval, picture, replay, inference, top.
//!
//! Start with [`Cli`], which dispatches to the commands. [`train`] supervises the processes of a run, which the crate
//! `fleet` starts, through command lines, admin ports and exit statuses: it depends on no game or network.
//! [`run_metrics`] computes the metrics of a run, [`screen`] shows them and [`record`] writes them; [`mod@report`]
//! makes [`summary`] and [`picture`] from the files of a run. [`play`] and [`eval`] evaluate the newest weights of a
//! run, [`trained`]. [`mod@replay`] and [`inference`] send requests to live servers, and [`top`] shows a whole fleet.
//! `bench` runs another program, by [`sibling`].

pub mod append_log;
mod client_security;
pub mod commands;
mod engines;
pub mod eval;
pub mod event_file;
pub mod inference;
pub mod picture;
pub mod play;
pub mod record;
pub mod replay;
pub mod report;
pub mod run_metrics;
pub mod screen;
pub mod sibling;
pub mod summary;
pub mod top;
pub mod train;
pub mod trained;
pub mod write_failures;

use std::io;
use std::process::ExitCode;

/// Trains game-playing networks from nothing, and shows what they have learnt.
#[derive(Debug, clap::Parser)]
#[command(name = "zerofleet", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Train(train::Args),
    Play(commands::Play),
    Eval(commands::Eval),
    Bench(commands::Bench),
    Picture(commands::Picture),
    Replay(replay::Args),
    Inference(inference::Args),
    Top(top::Args),
}

impl Cli {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Train(args) => train::run(args).map(|()| ExitCode::SUCCESS),
            Command::Picture(command) => command.run().map(|()| ExitCode::SUCCESS),
            Command::Top(args) => args.run(&mut io::stdout().lock()).map(|()| ExitCode::SUCCESS),
            Command::Inference(args) => args.run(&mut io::stdout().lock()).map(|()| ExitCode::SUCCESS),
            Command::Replay(args) => args.run(&mut io::stdout().lock()).map(|()| ExitCode::SUCCESS),
            Command::Bench(command) => command.run(),
            Command::Play(command) => command.run().map(|()| ExitCode::SUCCESS),
            Command::Eval(command) => command.run().map(|()| ExitCode::SUCCESS),
        }
    }
}

//! The command lines of `zerofleet gtp`, `zerofleet gomocup` and `zerofleet analysis`.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::ensure;
use protocols::{BoardGame, Color, Engine as _, gomocup, gtp, katago};
use service::Drain;
use tokio::runtime::Runtime;

use super::batch::Batch;
use super::connection::converse;
use super::network_engine::{NetworkEngine, Settings};
use crate::trained::{self, Trained};

/// Time per move to reserve beyond the search: for the current batch of the search, the response, and delays on the
/// other side.
const LAG: Duration = Duration::from_millis(100);
/// Default number of simulations per move or position.
const SIMULATIONS: u32 = 800;

/// Options for the weights and the search resources of an engine.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
struct EngineArgs {
    #[command(flatten)]
    trained: trained::Args,

    /// Number of evaluation threads per search; 0 for one per core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,

    /// Memory limit of the search tree in MiB; a full tree stops the search.
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    tree_mib: u32,
}

impl EngineArgs {
    /// Creates the engine and prints the game and weights version to standard error. Also returns the drain on signals,
    /// which stops the engine.
    fn start(&self, ponders: bool) -> anyhow::Result<(NetworkEngine, Runtime, Drain)> {
        let threads = if self.threads == 0 { service::machine::cores() } else { self.threads };
        // Loading may wait for an inference server. Signals are not handled yet, so that Ctrl-C stops the process.
        let trained = Trained::open(&self.trained, threads)?;
        let (runtime, drain) = crate::drain_on_signals()?;
        let start = Instant::now();
        let settings = Settings {
            search: trained.search.clone(),
            tree_bytes_max: usize::try_from(u64::from(self.tree_mib) << 20).unwrap_or(usize::MAX),
            ponders,
            drain: drain.clone(),
            clock: Box::new(move || start.elapsed()),
        };
        let (name, game) = (trained.name.clone(), trained.game.to_string());
        let engine = NetworkEngine::of_trained(&name, trained, settings)?;
        let identity = engine.identity();
        // Standard output is reserved for the protocol.
        writeln!(io::stderr(), "{} plays {game} with weights version {}", identity.name, identity.version)?;
        Ok((engine, runtime, drain))
    }
}

/// Search limits for moves on which the protocol sets no time limit.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
struct MoveArgs {
    /// Number of simulations per move, if the protocol sets no time limit.
    #[arg(long, value_name = "N", default_value_t = SIMULATIONS, value_parser = clap::value_parser!(u32).range(1..))]
    simulations: u32,

    /// Search for this many seconds per move, in place of a number of simulations.
    #[arg(long, value_name = "S", conflicts_with = "simulations", value_parser = seconds)]
    seconds: Option<Duration>,
}

impl MoveArgs {
    fn settings(&self) -> protocols::Settings {
        protocols::Settings { visits: self.simulations, time: self.seconds, lag: LAG }
    }
}

/// Parses a positive number of seconds.
///
/// # Errors
/// The text is not a positive number; the error contains the text.
fn seconds(text: &str) -> Result<Duration, String> {
    let duration = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| format!("`{text}` is not a positive number of seconds"))
}

/// Plays Go, Hex, Othello or Gomoku over the Go Text Protocol (GTP).
///
/// Plays with a model or the weights of a run. The protocol uses standard input and output, for user interfaces such as
/// Sabaki, GoGui and HexGui (docs/engines.md).
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct GtpArgs {
    #[command(flatten)]
    engine: EngineArgs,

    #[command(flatten)]
    moves: MoveArgs,

    /// Keep searching during the opponent's turn.
    #[arg(long)]
    ponder: bool,
}

impl GtpArgs {
    /// Responds to GTP commands until `quit`, the end of the input or Ctrl-C.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let (mut engine, runtime, drain) = self.engine.start(self.ponder)?;
        let settings = self.moves.settings();
        converse(&runtime, &drain, gtp::LINE_BYTES_MAX, |input, output, host| {
            gtp::serve(&mut engine, input, output, host, &settings)
        })
    }
}

/// Plays Gomoku over the Gomocup protocol.
///
/// Plays with a model or the weights of a run. The protocol uses standard input and output, for Piskvork and other
/// managers (docs/engines.md).
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct GomocupArgs {
    #[command(flatten)]
    engine: EngineArgs,

    #[command(flatten)]
    moves: MoveArgs,
}

impl GomocupArgs {
    /// Responds to Gomocup commands until `END`, the end of the input or Ctrl-C.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let (mut engine, runtime, drain) = self.engine.start(false)?;
        let game = engine.identity().game;
        ensure!(game == BoardGame::Gomoku, "the Gomocup protocol supports only Gomoku, not {game:?}");
        let settings = self.moves.settings();
        converse(&runtime, &drain, gomocup::LINE_BYTES_MAX, |input, output, host| {
            gomocup::serve(&mut engine, input, output, host, &settings)
        })
    }
}

/// Analyses positions (KataGo's JSON protocol) or games in SGF files.
///
/// Searches with a model or the weights of a run. The protocol uses standard input and output, for user interfaces such
/// as KaTrain. With --sgf, analyses files instead (docs/engines.md).
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AnalysisArgs {
    #[command(flatten)]
    engine: EngineArgs,

    /// Simulations per position, for queries without `maxVisits`.
    #[arg(long, value_name = "N", default_value_t = SIMULATIONS, value_parser = clap::value_parser!(u32).range(1..))]
    simulations: u32,

    /// Player for whom the protocol reports win rates.
    #[arg(long, value_name = "SIDE", default_value = "black", conflicts_with = "sgf")]
    winrates_of: Side,

    /// Analyse this SGF file, or all `*.sgf` and `*.SGF` files in this directory.
    ///
    /// The program then does not use the protocol on standard input and output.
    #[arg(long, value_name = "PATH", requires = "output")]
    sgf: Option<PathBuf>,

    /// Output directory for the analyses, with one JSON file per SGF file.
    #[arg(long, value_name = "DIR", requires = "sgf")]
    output: Option<PathBuf>,

    /// Repeat the analysis of SGF files that already have a JSON file.
    #[arg(long, requires = "sgf")]
    force: bool,
}

/// The perspective from which win rates are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Side {
    /// Black, as in KataGo's example configuration.
    Black,
    /// White.
    White,
    /// The player to move.
    Mover,
}

impl Side {
    const fn perspective(self) -> katago::Perspective {
        match self {
            Self::Black => katago::Perspective::Of(Color::Black),
            Self::White => katago::Perspective::Of(Color::White),
            Self::Mover => katago::Perspective::SideToMove,
        }
    }
}

impl AnalysisArgs {
    /// Responds to queries until the end of the input, or analyses SGF files. Ctrl-C stops both.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let (mut engine, runtime, drain) = self.engine.start(false)?;
        if let Some((sgf, output)) = self.sgf.as_ref().zip(self.output.as_ref()) {
            let batch = Batch { sgf, output, force: self.force, simulations: self.simulations, drain: &drain };
            return batch.run(&mut engine, &mut io::stdout());
        }
        let settings = katago::Settings { visits: self.simulations, perspective: self.winrates_of.perspective() };
        converse(&runtime, &drain, katago::LINE_BYTES_MAX, |input, output, host| {
            katago::serve(&mut engine, input, output, host, &settings)
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::Cli;

    #[test]
    fn a_move_is_limited_by_simulations_or_by_seconds_and_files_need_an_output() {
        let is_accepted = |words: &str| Cli::try_parse_from(words.split(' ')).is_ok();
        assert!(is_accepted("zerofleet gtp --run a"));
        assert!(is_accepted("zerofleet gtp --weights hex-7 --game hex-7 --seconds 1"));
        assert!(is_accepted("zerofleet gtp --run a --version 3 --seconds 0.5 --ponder --threads 2"));
        assert!(is_accepted("zerofleet gomocup --run a --simulations 10 --inference http://127.0.0.1:7003"));
        assert!(is_accepted("zerofleet analysis --run a --winrates-of mover"));
        assert!(is_accepted("zerofleet analysis --run a --sgf games --output out --force --set search.c_init=2"));
        for words in [
            "zerofleet gtp",
            "zerofleet gtp --run a --weights hex-7",
            "zerofleet gtp --weights hex-7 --version 3",
            "zerofleet gtp --weights hex-7 --inference http://127.0.0.1:7003",
            "zerofleet gtp --run a --simulations 0",
            "zerofleet gtp --run a --simulations 5 --seconds 1",
            "zerofleet gtp --run a --seconds 0",
            "zerofleet gtp --run a --seconds nan",
            "zerofleet analysis --run a --sgf games",
            "zerofleet analysis --run a --force",
        ] {
            assert!(!is_accepted(words), "{words}");
        }
    }
}

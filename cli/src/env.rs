//! `zerofleet env`: describes a Python environment as the processes of a run see it.

use std::io::Write;

use bridge::config::Values;
use bridge::{EnvironmentSection, Trial};
use game::Outcome;
use games::recorded::PREFIX;
use run_file::RunFile;
use service::config::Sources;

/// Describes Python environments (Gymnasium).
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum Request {
    /// Describes an environment after one episode of random actions.
    ///
    /// Prints the actions, observations and step limit, and a section for the run file.
    Describe {
        /// Environment: a Gymnasium id, `module:id` or `call:module:function`.
        #[arg(long, value_name = "NAME")]
        gym: String,

        /// Override one key of the section [environment]; may be repeated.
        #[arg(long = "set", value_name = "environment.KEY=VALUE")]
        sets: Vec<String>,
    },
}

impl Request {
    /// Plays a trial episode of the environment and prints the description.
    pub(crate) fn run(self, output: &mut impl Write) -> anyhow::Result<()> {
        let Self::Describe { gym, sets } = self;
        let game = format!("{PREFIX}{gym}");
        let sets = sets.into_iter().chain([format!("run.game={game}")]).collect();
        let mut config: RunFile = Sources { file: None, env: std::env::vars_os(), sets }.read(games::preset)?.load()?;
        let trial = fleet::environment::describe(&mut config)?;
        write(&game, &config.environment, trial.as_ref(), output)
    }
}

fn write(
    game: &str,
    environment: &EnvironmentSection,
    trial: Option<&Trial>,
    output: &mut impl Write,
) -> anyhow::Result<()> {
    let EnvironmentSection { actions, planes, height, width, values, stack, steps_max, .. } = environment;
    let (kind, bytes) = match values {
        Values::F32 => ("float32", 4),
        Values::U8 => ("bytes", 1),
    };
    writeln!(output, "# {game}: {actions} actions, observations [{}, {height}, {width}] of {kind}", planes * stack)?;
    writeln!(output, "# at most {steps_max} steps, {} bytes each before compression", planes * height * width * bytes)?;
    if let Some(Trial { steps, reward, outcome, printed }) = trial {
        let end = match outcome {
            Some(Outcome::Truncated) => "truncated",
            Some(_) => "complete",
            None => "stopped before the end",
        };
        writeln!(output, "# trial episode with random actions: {steps} steps, return {reward:.3}, {end}")?;
        if let Some(line) = printed {
            writeln!(output, "# process output: {line}")?;
        }
    }
    writeln!(output, "[environment]\n{}", service::config::print(environment)?)?;
    Ok(())
}

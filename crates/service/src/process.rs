//! The life cycle of every process: handle signals, load the configuration, start telemetry, build and run, drain.

use std::collections::BTreeMap;
use std::env::VarsOs;
use std::fmt::Display;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _};
use metrics_exporter_prometheus::PrometheusHandle;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::config::{self, Layers, Preset, RunSection, Sources};
use crate::identity::Identity;
use crate::telemetry::{self, TelemetrySection};
use crate::{
    Admin, CommonArgs, ConfigError, Drain, Health, Live, LogFormat, Readiness, descriptors, device_loss, devices, net,
    trace,
};

/// The exit code of a process that failed.
const EXIT_FAILURE: u8 = 1;
/// The exit code for an invalid command line or configuration.
const EXIT_USAGE: u8 = 2;
/// Tasks that a worker polls between two checks of the sockets. tokio's default of 61 delays a client with little
/// traffic while other clients keep all workers busy.
const EVENT_INTERVAL: u32 = 16;
/// Time limit for tasks that outlive the body; the runtime then drops them.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// The environment that [`run`] passes to the body of a process.
#[derive(Debug, Clone)]
pub struct Context {
    /// Name of the process.
    pub name: &'static str,
    /// Address at which to serve gRPC, if the process serves; open it with [`net::bind`].
    pub listen: SocketAddr,
    /// Address of the admin port.
    pub admin: SocketAddr,
    /// Fires when the process must exit: the body then finishes the work, uploads results and returns.
    pub drain: Drain,
    /// Health of the process; the body adds the threads that it cannot work without.
    pub health: Health,
    /// Readiness of the process, which the body sets when it can work.
    pub readiness: Readiness,
    /// Games in progress, which the body shows if it plays any.
    pub live: Live,
    /// Renders the metrics of this process.
    pub metrics: PrometheusHandle,
}

/// The future of a process from configuration to exit. It is boxed, so that it is compiled in the crate of the
/// process, and not again in each crate that waits for it.
pub type Body = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// The sections that every process reads.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Shared {
    run: RunSection,
    telemetry: TelemetrySection,
}

/// Runs the process `name`, with `about` at the start of the help. Parses the command line, loads `T` from preset,
/// file, environment and command line, opens the admin port, and calls `body` on a runtime.
///
/// The exit code is 0 if the body succeeded, 1 if it failed, 2 if the configuration was rejected (also by the body, if
/// a [`ConfigError`] is in its error chain). An error is printed as one line on standard error. With `--probe` it only
/// queries a running process.
pub fn run<T, E>(name: &'static str, about: &'static str, preset: Preset<E>, body: fn(T, Context) -> Body) -> ExitCode
where
    T: Serialize + DeserializeOwned + Default + 'static,
    E: Display,
{
    run_parsed(name, parsed(name, about), preset, body)
}

/// Runs a process like [`run`] as a command of another program, which has parsed the options `common`.
pub fn run_parsed<T, E>(
    name: &'static str,
    common: CommonArgs,
    preset: Preset<E>,
    body: fn(T, Context) -> Body,
) -> ExitCode
where
    T: Serialize + DeserializeOwned + Default + 'static,
    E: Display,
{
    run_loaded(name, common, &|sources| {
        let layers = sources.read(preset)?;
        let config = layers.load::<T>()?;
        let printed = config::print(&config);
        Ok(Loaded { layers, printed, start: Box::new(move |context| body(config, context)) })
    })
}

/// A loaded configuration, with the body that takes it.
struct Loaded {
    layers: Layers,
    /// The configuration in the form of [`config::print`].
    printed: Result<String, ConfigError>,
    start: Box<dyn FnOnce(Context) -> Body>,
}

/// Parses the arguments of this process, and exits with a message if they are invalid.
fn parsed(name: &'static str, about: &'static str) -> CommonArgs {
    let command = CommonArgs::command().name(name).about(about).long_about(None);
    CommonArgs::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
}

/// Implements [`run_parsed`]; compiled once, and not once per configuration.
fn run_loaded(
    name: &'static str,
    common: CommonArgs,
    load: &dyn Fn(Sources<VarsOs>) -> Result<Loaded, ConfigError>,
) -> ExitCode {
    let (format, result) = match common.probe {
        // Container engines show the response for unhealthy containers.
        Some(probe) => (LogFormat::Text, probe.send(common.admin).map(|response| print(&response))),
        None => (common.log_format, try_run(name, common, load)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error, format);
            ExitCode::from(exit_status(&error))
        }
    }
}

fn try_run(
    name: &'static str,
    common: CommonArgs,
    load: &dyn Fn(Sources<VarsOs>) -> Result<Loaded, ConfigError>,
) -> anyhow::Result<()> {
    // The runtime only drives sockets and timers: two workers leave the cores to search and tensors.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).event_interval(EVENT_INTERVAL).enable_all().build()?;
    // This precedes all slow steps: from here on a signal starts a drain instead of killing the process.
    let drain = Drain::new();
    runtime.block_on(async { drain.on_signals() })?;
    let sources = Sources { file: common.config, env: std::env::vars_os(), sets: common.sets };
    let Loaded { layers, printed, start } = load(sources)?;
    let Shared { run, telemetry: section } = layers.load()?;
    if common.print_config {
        layers.notes.iter().for_each(|note| print(&format!("{}{note}\n", config::NOTE)));
        print(&printed?);
        print(&config::print(&BTreeMap::from([("telemetry", &section)]))?);
        return Ok(());
    }
    let collector = section.collector()?;
    let identity = Identity::new(name, &run, &section.run);
    telemetry::init_tracing(common.log_format, &common.log_level, &identity)?;
    // Servers need a descriptor per connection, and clients one per server.
    descriptors::raise_limit();
    let metrics = telemetry::install_metrics()?;
    telemetry::export_start_time();
    identity.export_metric();
    device_loss::export_metric();
    let ended = drain.clone();
    let result = runtime.block_on(async {
        if common.exit_with_parent {
            drain.on_end_of(std::io::stdin())?;
        }
        let exporter = collector.map(|collector| trace::start(collector, section.trace_share, identity));
        devices::start(drain.clone());
        let readiness = Readiness::starting();
        let listener = net::bind(common.admin).await?;
        let health = Health::default();
        let live = Live::default();
        let admin = Admin::start(listener, metrics.clone(), health.clone(), readiness.clone(), live.clone())?;
        tracing::info!(process = name, pid = std::process::id(), admin = %admin.address, "started");
        let (listen, admin_address) = (common.listen, admin.address);
        let context = Context { name, listen, admin: admin_address, drain, health, readiness, live, metrics };
        let result = start(context).await;
        admin.stop().await;
        if let Some(exporter) = exporter {
            exporter.finish().await;
        }
        result
    });
    // Tasks that run until the drain also stop after a body that returned by itself.
    ended.start();
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    if result.is_ok() {
        tracing::info!(process = name, "ended");
    }
    result
}

/// Formats the whole chain of an error as one line.
pub fn chain(error: &anyhow::Error) -> String {
    joined(error).replace('\n', "; ")
}

/// Formats the whole chain of an error for a terminal: as one line, except that text after an empty line, such as
/// code, keeps the line breaks.
pub fn chain_with_code(error: &anyhow::Error) -> String {
    let text = joined(error);
    let Some((message, code)) = text.split_once("\n\n") else { return text.replace('\n', "; ") };
    format!("{}\n\n{code}", message.replace('\n', "; "))
}

fn joined(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        // Some error messages repeat the source; the repetition is left out.
        if line.ends_with(&text) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&text);
    }
    line
}

fn exit_status(error: &anyhow::Error) -> u8 {
    if error.chain().any(|cause| cause.is::<ConfigError>()) { EXIT_USAGE } else { EXIT_FAILURE }
}

/// Reports the error of a failed process once: as a log line in JSON format, else as plain text.
#[expect(clippy::print_stderr, reason = "the one place where a process reports its own failure")]
fn report(error: &anyhow::Error, format: LogFormat) {
    match (format, tracing::dispatcher::has_been_set()) {
        (LogFormat::Json, true) => tracing::error!(error = chain(error), "failed"),
        _ => eprintln!("error: {}", chain(error)),
    }
}

#[expect(clippy::print_stdout, reason = "--print-config and --probe print")]
fn print(text: &str) {
    print!("{text}");
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use clap::Parser as _;

    use super::*;

    #[test]
    fn a_chain_is_one_sentence_without_repetition() {
        let cause = std::io::Error::other("disk full");
        let error = anyhow::Error::new(cause).context("write step 12").context("save checkpoint");
        assert_eq!(chain(&error), "save checkpoint: write step 12: disk full");
        let repeated = Err::<(), _>(anyhow::anyhow!("disk full")).context("save: disk full").unwrap_err();
        assert_eq!(chain(&repeated), "save: disk full");
        assert_eq!(chain(&anyhow::anyhow!("two\nlines")), "two; lines");
        let with_code = anyhow::anyhow!("two\nlines\n\nif a:\n    b").context("describe");
        assert_eq!(chain_with_code(&with_code), "describe: two; lines\n\nif a:\n    b");
        assert!(!chain(&with_code).contains('\n'), "a log has one line");
    }

    #[test]
    fn refused_configurations_exit_with_2_and_failures_with_1() {
        let refused = anyhow::Error::new(ConfigError::invalid("learner.batch", "must be at least 1")).context("build");
        assert_eq!(exit_status(&refused), EXIT_USAGE);
        assert_eq!(chain(&refused), "build: learner.batch: must be at least 1");
        assert_eq!(exit_status(&anyhow::anyhow!("disk full")), EXIT_FAILURE);
    }

    #[test]
    fn common_options_have_defaults() {
        let common = CommonArgs::parse_from(["learner"]);
        assert_eq!((common.admin.port(), common.listen.port(), common.log_level.as_str()), (0, 0, "info"));
        let common = CommonArgs::parse_from(["learner", "--set", "a.b=1", "--set", "c.d=2", "--log-format", "json"]);
        assert_eq!((common.sets, common.log_format), (vec!["a.b=1".to_owned(), "c.d=2".to_owned()], LogFormat::Json));
    }
}

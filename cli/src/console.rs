//! `zerofleet console`: serves pages of a run to browsers. `zerofleet train` starts the command as a process.

use std::ffi::OsString;
use std::io::{self, Write};
use std::iter;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use fleet::RunDirectory;
use fleet::child::{self, Child, Event};
use fleet::run_directory::{SecurityOnly, load_run};
use service::identity::{self, Identity};
use service::net::{ReservedPort, reserve_wanted};
use service::security::is_loopback;
use service::{Drain, LogFormat, telemetry};
use transport::security::Scopes;
use web_console::{Console, Settings, Thinker};

use crate::console_thinker::ConsoleThinker;

/// Usual address of a console.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7080);
/// Name of the process in events and of the log file.
const NAME: &str = "console";

/// Serves pages of a run to browsers, whether it trains or has ended.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Name of the run.
    #[arg(long, value_name = "NAME")]
    run: String,

    /// Directory of all runs.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,

    /// Listen address [default: 127.0.0.1:7080, or a free port if it is taken].
    ///
    /// Other addresses than loopback need security.certificate and security.tokens in the run file.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// Search positions of visitors on this inference server (http or https endpoint).
    ///
    /// The server chooses the weights; the run supplies the search settings and the credentials.
    #[arg(long, value_name = "ENDPOINT")]
    inference: Option<String>,

    #[command(flatten)]
    scopes: ScopeOptions,

    /// Exit when standard input closes, which shows that the parent process has exited.
    #[arg(long, hide = true)]
    exit_with_parent: bool,
}

/// The scopes of visitors.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ScopeOptions {
    /// Scopes that the console grants at most: view, infer, admin [default: all].
    #[arg(long, value_name = "SCOPE[,SCOPE]")]
    console_scopes: Option<Scopes>,
}

/// The console of `zerofleet train`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Start no console.
    #[arg(long, conflicts_with = "console_scopes")]
    no_console: bool,

    #[command(flatten)]
    scopes: ScopeOptions,
}

impl Args {
    /// Serves until Ctrl-C.
    ///
    /// # Errors
    /// The run does not exist, or the console cannot listen at the address.
    pub(crate) fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let run = RunDirectory::existing(&self.runs, &self.run)?;
        // Dropped after the runtime, on whose threads a connection to an inference server must not be closed.
        let thinker: Arc<dyn Thinker> = Arc::new(ConsoleThinker::new(run.clone(), self.runs, self.inference));
        let (runtime, drain) = crate::drain_on_signals()?;
        if self.exit_with_parent {
            drain.on_end_of(io::stdin())?;
        }
        telemetry::init_tracing(LogFormat::Text, "info", &identity(&run))?;
        // The port stays reserved until the console listens.
        let port = self.listen.is_none().then(reserve).transpose()?;
        let listen = self.listen.or(port.as_ref().map(ReservedPort::address)).unwrap_or(LISTEN_DEFAULT);
        // On loopback the users of the machine are trusted, and the credentials of the fleet do not apply.
        let SecurityOnly { security } =
            if is_loopback(listen.ip()) { SecurityOnly::default() } else { load_run(&run)? };
        let (scopes, thinker) = (self.scopes.console_scopes.unwrap_or_default(), Arc::clone(&thinker));
        let settings = Settings { run, listen, security, scopes, thinker };
        runtime.block_on(serve(settings, &drain, out))
    }
}

async fn serve(settings: Settings, drain: &Drain, out: &mut impl Write) -> anyhow::Result<()> {
    let console = Console::start(settings, drain.clone()).await?;
    writeln!(out, "console: {}", console.url()).and_then(|()| out.flush()).context("print the address")?;
    drain.wait().await;
    console.stop().await;
    Ok(())
}

fn identity(run: &RunDirectory) -> Identity {
    let instance = std::process::id().to_string();
    Identity { role: NAME, run: run.name().to_owned(), game: String::new(), version: identity::version(), instance }
}

/// Reserves the usual port, or a free port if it is taken.
fn reserve() -> anyhow::Result<ReservedPort> {
    let reserved = reserve_wanted(iter::once(Some(LISTEN_DEFAULT))).context("find a free port for the console")?;
    reserved.into_iter().next().context("find a free port for the console")
}

/// The console as a process of a training session. The loss of it never ends the training.
#[derive(Debug)]
pub(crate) struct ConsoleProcess {
    child: Child,
    /// Reserved, so that the process gets the same port after a restart and open tabs reconnect.
    port: ReservedPort,
}

impl ConsoleProcess {
    /// Starts the console of a run; `None` if the options exclude it.
    ///
    /// # Errors
    /// No port is free, or the process cannot be started.
    pub(crate) fn start(run: &RunDirectory, options: &Options, now: Instant) -> anyhow::Result<Option<Self>> {
        if options.no_console {
            return Ok(None);
        }
        let port = reserve()?;
        let runs = run.path().parent().unwrap_or(run.path());
        let mut arguments: Vec<OsString> = vec![NAME.into(), "--exit-with-parent".into(), "--run".into()];
        arguments.extend([run.name().into(), "--runs".into(), runs.into()]);
        arguments.extend(["--listen".into(), port.address().to_string().into()]);
        if let Some(scopes) = &options.scopes.console_scopes {
            arguments.extend(["--console-scopes".into(), scopes.to_string().replace(' ', "").into()]);
        }
        let program = std::env::current_exe().context("find this program")?;
        let log = run.logs().join(format!("{NAME}.log"));
        let settings = child::Settings { name: NAME.to_owned(), program, arguments, environment: Vec::new(), log };
        Ok(Some(Self { child: Child::start(settings, now).context("start the console")?, port }))
    }

    /// Returns the address for a browser.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// Checks the process, and restarts it after an exit. Returns the news.
    pub(crate) fn watch(&mut self, now: Instant) -> Option<String> {
        let without = |why: String| format!("{NAME} {why}; training continues without it");
        match self.child.watch(now) {
            Ok(event) => event.map(|event| match event {
                Event::Died { how, pause, .. } => format!("{NAME} {how}, restarting in {} s", pause.as_secs_f64()),
                Event::Restarted => format!("{NAME} was restarted"),
                Event::Refused { why } | Event::GivenUp { why } => without(why),
            }),
            Err(error) => {
                // Disables further restarts.
                self.child.kill();
                Some(without(format!("cannot be restarted: {error}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use service::SecuritySection;

    use super::*;

    #[test]
    fn a_taken_port_is_replaced_by_a_free_one() {
        // Another program may hold the usual port, too.
        let _listener = std::net::TcpListener::bind(LISTEN_DEFAULT);
        let port = reserve().unwrap();
        assert_ne!(port.address().port(), LISTEN_DEFAULT.port());
        drop(std::net::TcpListener::bind(port.address()).unwrap());
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_an_error_that_names_it() {
        let runs = tempfile::tempdir().unwrap();
        let run = RunDirectory::new(runs.path(), "first").unwrap();
        let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let listen = taken.local_addr().unwrap();
        let thinker = Arc::new(ConsoleThinker::new(run.clone(), runs.path().to_owned(), None));
        let (security, scopes) = (SecuritySection::default(), Scopes::default());
        let settings = Settings { run, listen, security, scopes, thinker };
        let error = Console::start(settings, Drain::new()).await.unwrap_err().to_string();
        assert!(error.contains(&format!("cannot listen on {listen}: the port is in use")), "{error}");
    }
}

//! `zerofleet console`: serves pages of a run to browsers. `zerofleet train` starts the command as a process, and an
//! orchestrator of containers starts it with a run file and a port for probes.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::iter;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use fleet::RunDirectory;
use fleet::admin_hosts::{admin_address, or_services};
use fleet::child::{self, Child, Event};
use fleet::run_directory::{SecurityOnly, load_run};
use service::identity::{self, Identity};
use service::net::{ReservedPort, bind, reserve_wanted};
use service::security::is_loopback;
use service::{Admin, Drain, Health, Live, LogFormat, Probe, Readiness, telemetry};
use tokio::sync::mpsc::{Receiver, channel};
use transport::security::Scopes;
use web_console::{Change, Console, Settings, Thinker};

use crate::console_thinker::ConsoleThinker;

/// Usual address of a console.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7080);
/// Name of the process in events and of the log file.
const NAME: &str = "console";
/// Maximum number of requested changes that wait for the supervisor.
const REQUESTS_MAX: usize = 8;
/// Maximum length of a requested change in bytes, with the end of the line.
const LINE_BYTES_MAX: usize = 1024;

/// Serves pages of a run to browsers, whether it trains or has ended.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Name of the run.
    #[arg(long, value_name = "NAME", required_unless_present_any = ["config", "probe"])]
    run: Option<String>,

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

    /// Scopes that the console grants at most: view, infer, admin [default: all].
    #[arg(long, value_name = "SCOPE[,SCOPE]")]
    console_scopes: Option<Scopes>,

    /// Run file of a fleet in containers, in place of --run.
    ///
    /// Variables of the environment override keys, as in the processes.
    #[arg(long, value_name = "FILE", conflicts_with = "run")]
    config: Option<PathBuf>,

    /// Admin address of a process of the fleet in --config; may be repeated [default: all services].
    ///
    /// Host names are resolved again and again, and have the same defaults as in `zerofleet top`.
    #[arg(long, value_name = "HOST:PORT", value_parser = admin_address, requires = "config", conflicts_with = "run")]
    admin: Vec<String>,

    /// Listen address of `/healthz`, `/readyz` and `/metrics` of the console, for orchestrators and Prometheus.
    #[arg(long, value_name = "ADDRESS")]
    health: Option<SocketAddr>,

    /// Probe the running console at --health, and exit.
    #[arg(long, value_enum, value_name = "WHAT", requires = "health")]
    probe: Option<Probe>,

    /// Format of log lines.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,

    /// Exit when standard input closes, which shows that the parent process has exited, and print requested changes.
    ///
    /// The parent process reads one change per line.
    #[arg(long, hide = true)]
    exit_with_parent: bool,
}

/// The console of `zerofleet train`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Start no console.
    #[arg(long, conflicts_with = "console_scopes")]
    no_console: bool,

    /// Scopes that the console grants at most: view, infer, admin [default: all].
    #[arg(long, value_name = "SCOPE[,SCOPE]")]
    console_scopes: Option<Scopes>,
}

impl Args {
    /// Serves until Ctrl-C, or probes a running console.
    ///
    /// # Errors
    /// The run or the run file does not exist, the console cannot listen at an address, or the probe fails.
    pub(crate) fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        if let Some((probe, health)) = self.probe.zip(self.health) {
            return out.write_all(probe.send(health)?.as_bytes()).context("print the response");
        }
        let run = match self.config {
            Some(config) => RunDirectory::deployed(config, or_services(self.admin))?,
            None => RunDirectory::existing(&self.runs, &self.run.unwrap_or_default())?,
        };
        // Dropped after the runtime, on whose threads a connection to an inference server must not be closed.
        let thinker: Arc<dyn Thinker> = Arc::new(ConsoleThinker::new(run.clone(), self.inference));
        let (runtime, drain) = crate::drain_on_signals()?;
        if self.exit_with_parent {
            drain.on_end_of(io::stdin())?;
        }
        telemetry::init_tracing(self.log_format, "info", &identity(&run))?;
        // The port stays reserved until the console listens.
        let port = self.listen.is_none().then(reserve).transpose()?;
        let listen = self.listen.or(port.as_ref().map(ReservedPort::address)).unwrap_or(LISTEN_DEFAULT);
        // On loopback the users of the machine are trusted, and the credentials of the fleet do not apply.
        let SecurityOnly { security } =
            if is_loopback(listen.ip()) { SecurityOnly::default() } else { load_run(&run)? };
        let (scopes, thinker) = (self.console_scopes.unwrap_or_default(), Arc::clone(&thinker));
        let program = std::env::current_exe().context("find this program")?;
        let (sender, requests) = channel(REQUESTS_MAX);
        let supervisor = self.exit_with_parent.then_some(sender);
        let settings = Settings { run, listen, security, scopes, thinker, program, supervisor };
        let served = runtime.block_on(async {
            let readiness = Readiness::starting();
            let admin = open_admin(self.health, readiness.clone()).await?;
            let console = Console::start(settings, drain.clone()).await?;
            readiness.ready();
            serve(console, requests, &drain, out).await?;
            if let Some(admin) = admin {
                admin.stop().await;
            }
            Ok(())
        });
        // A search that cannot be stopped must not delay the exit.
        runtime.shutdown_timeout(Duration::from_secs(1));
        served
    }
}

/// Prints the address and then each requested change, until the drain.
async fn serve(
    console: Console,
    mut requests: Receiver<String>,
    drain: &Drain,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    writeln!(out, "console: {}", console.url()).and_then(|()| out.flush()).context("print the address")?;
    while let Some(Some(request)) = drain.unless_started(requests.recv()).await {
        writeln!(out, "{request}").and_then(|()| out.flush()).context("write to the supervisor")?;
    }
    drain.wait().await;
    console.stop().await;
    Ok(())
}

/// Opens the port for probes, if any. Health is that of the runtime: a console that can no longer read the run exits.
async fn open_admin(address: Option<SocketAddr>, readiness: Readiness) -> anyhow::Result<Option<Admin>> {
    let Some(address) = address else { return Ok(None) };
    // Before any certificate is read, so that the expiry is exported.
    let metrics = telemetry::install_metrics()?;
    telemetry::export_start_time();
    Ok(Some(Admin::start(bind(address).await?, metrics, Health::default(), readiness, Live::default())?))
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
    /// Standard output of the process, which does not block this process.
    output: BufReader<UnixStream>,
    /// The start of a line of which the rest has not arrived.
    line: Vec<u8>,
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
        // The name of a run may begin with a hyphen.
        let (name, listen) = (format!("--run={}", run.name()), format!("--listen={}", port.address()));
        let words = [NAME, "--exit-with-parent", &name, &listen, "--runs"].map(OsString::from);
        let scopes = options.console_scopes.iter().map(|scopes| format!("--console-scopes={scopes}").replace(' ', ""));
        let arguments = words.into_iter().chain([runs.into()]).chain(scopes.map(OsString::from)).collect();
        let program = std::env::current_exe().context("find this program")?;
        let log = run.logs().join(format!("{NAME}.log"));
        let settings = child::Settings { name: NAME.to_owned(), program, arguments, environment: Vec::new(), log };
        let (reader, writer) = UnixStream::pair().context("open a channel from the console")?;
        reader.set_nonblocking(true).context("open a channel from the console")?;
        let child = Child::start_writing_to(Some(writer.into()), settings, now).context("start the console")?;
        Ok(Some(Self { child, port, output: BufReader::new(reader), line: Vec::new() }))
    }

    /// Returns the next change that a visitor has requested, if any, and the name of the visitor. The caller limits the
    /// rate.
    pub(crate) fn request(&mut self) -> Option<(Change, String)> {
        request(&mut self.output, &mut self.line)
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

/// Reads one line of bounded length. Returns `None` without a whole line, and for a line that is no request.
fn request(input: &mut impl BufRead, line: &mut Vec<u8>) -> Option<(Change, String)> {
    let left = LINE_BYTES_MAX.saturating_sub(line.len()) as u64;
    // After an error, the rest of the line has not arrived, and `line` keeps the start.
    let _ = input.take(left).read_until(b'\n', line);
    if !line.ends_with(b"\n") && line.len() < LINE_BYTES_MAX {
        return None;
    }
    let whole = String::from_utf8(std::mem::take(line)).ok()?;
    Change::of_line(whole.strip_suffix('\n')?)
}

#[cfg(test)]
mod tests {
    use service::SecuritySection;

    use super::*;

    fn parsed(options: &str) -> Result<Args, String> {
        let words = ["zerofleet", "console"].into_iter().chain(options.split_whitespace()).map(OsString::from);
        match crate::arguments::parse(words).map(|cli| cli.command) {
            Ok(crate::Command::Console(args)) => Ok(args),
            Ok(_) => panic!("another command"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_console_shows_a_run_or_a_fleet_in_containers_and_a_probe_needs_neither() {
        assert_eq!(parsed("--run first").unwrap().run.unwrap(), "first");
        let fleet = parsed("--config run.toml --admin actor:9100 --admin [::1]:9100").unwrap();
        assert_eq!(fleet.admin, ["actor:9100", "[::1]:9100"]);
        assert!(parsed("--health 0.0.0.0:9100 --probe ready").unwrap().probe.is_some());
        for (options, reason) in [
            ("", "--run"),
            ("--run first --config run.toml", "cannot be used with"),
            ("--run first --admin actor:9100", "cannot be used with"),
            ("--admin actor:9100", "--config"),
            ("--config run.toml --admin actor", "expected HOST:PORT"),
            ("--probe ready", "--health"),
        ] {
            let error = parsed(options).unwrap_err();
            assert!(error.contains(reason), "{options}: {error}");
        }
    }

    #[test]
    fn requests_arrive_one_by_one_and_other_lines_are_left_out() {
        let (input, mut console) = UnixStream::pair().unwrap();
        input.set_nonblocking(true).unwrap();
        let (mut input, mut line) = (BufReader::new(input), Vec::new());
        let mut read = || request(&mut input, &mut line);
        let alice = |change| Some((change, "alice".to_owned()));
        console.write_all(b"console: http://127.0.0.1:7080\nactors=2 alice\nstop= al").unwrap();
        assert_eq!([read(), read(), read()], [None, alice(Change::Actors(2)), None]);
        console.write_all(b"ice\n").unwrap();
        assert_eq!([read(), read()], [alice(Change::Stop), None]);
        // A line that is too long ends early, and the rest is another line.
        let long = [b"actors=2 ".as_slice(), &[b'a'; LINE_BYTES_MAX], b"\nno \xff\nstop= alice\n"];
        console.write_all(&long.concat()).unwrap();
        assert_eq!([read(), read(), read(), read()], [None, None, None, alice(Change::Stop)]);
        assert!(read().is_none() && line.is_empty());
    }

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
        let thinker = Arc::new(ConsoleThinker::new(run.clone(), None));
        let (security, scopes) = (SecuritySection::default(), Scopes::default());
        let (program, supervisor) = (PathBuf::from("zerofleet"), None);
        let settings = Settings { run, listen, security, scopes, thinker, program, supervisor };
        let error = Console::start(settings, Drain::new()).await.unwrap_err().to_string();
        assert!(error.contains(&format!("cannot listen on {listen}: the port is in use")), "{error}");
    }
}

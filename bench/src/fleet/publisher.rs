//! Serves weights as a learner does, in a separate process so that its memory and CPU time can be measured: the
//! service, the server and the version store of the learner, with networks of random weights. Each line on its standard
//! input makes it publish.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail, ensure};
use games::{GameKind, with_game};
use proto::security::Security;
use proto::weights::{Published, WeightsService};
use service::Drain;
use weights::{Manifest, WeightsVersion};

use crate::network::{numbers, random_weights};

/// Versions kept, as many as the learner keeps by default.
const KEPT: usize = 4;
/// Threads for sockets, as many as in every process.
const WORKERS: usize = 2;
/// The subcommand with which this program starts itself as a publisher.
pub const COMMAND: &str = "publisher";

/// Options of `zerofleet bench publisher`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Networks to publish in turn, one for each line of standard input.
    #[arg(long, value_delimiter = ',', value_parser = tower)]
    pub networks: Vec<[usize; 2]>,
    /// Fetches served at once [default: as many as a learner serves].
    #[arg(long)]
    pub fetches: Option<usize>,
    /// The seed of the random weights.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Serves until standard input ends. Prints the address, and then the size in bytes of each published version.
///
/// # Errors
/// A network that cannot be built, a port that cannot be opened.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    ensure!(!args.networks.is_empty(), "--networks must name at least one");
    service::descriptors::raise_limit();
    let networks = args.networks.iter().map(|&network| made(network, args.seed)).collect::<anyhow::Result<Vec<_>>>()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
    let listener = runtime.block_on(service::net::bind((Ipv4Addr::LOCALHOST, 0).into()))?;
    let (service, publisher) = WeightsService::new(KEPT);
    let service = match args.fetches {
        Some(fetches) => service.with_fetches_at_once(fetches),
        None => service,
    };
    let (address, drain) = (listener.local_addr()?, Drain::new());
    let serving = runtime.spawn(proto::weights::serve(service, Security::default(), listener, drain.token()));
    writeln!(out, "http://{address}")?;
    out.flush()?;
    let mut networks = networks.iter().cycle();
    for (version, line) in (1..).zip(std::io::stdin().lock().lines()) {
        line.context("read what to do")?;
        let Published { manifest, bytes } = networks.next().context("no network")?;
        publisher.publish(Manifest { version: WeightsVersion(version), ..manifest.clone() }, bytes.clone())?;
        writeln!(out, "{}", bytes.len())?;
        out.flush()?;
    }
    drain.start();
    runtime.block_on(serving)?.context("serve weights")
}

/// Parses the size of a network for Connect Four: residual blocks and channels.
pub(crate) fn tower(text: &str) -> Result<[usize; 2], String> {
    let size = numbers(text).filter(|size| !size.contains(&0));
    size.ok_or_else(|| format!("`{text}` is not a network: write BLOCKSxCHANNELS, such as 6x64"))
}

/// The size of a network as [`tower`] parses it.
pub(crate) fn tower_name([blocks, channels]: [usize; 2]) -> String {
    format!("{blocks}x{channels}")
}

fn made(network: [usize; 2], seed: u64) -> anyhow::Result<Published> {
    let spec = with_game!(GameKind::ConnectFour, |game| game::Game::spec(&game).clone());
    let made = random_weights(&spec, network[0], network[1], seed);
    made.with_context(|| format!("make a network of {}", tower_name(network)))
}

/// A publisher in a child process, which is killed on drop.
#[derive(Debug)]
pub(super) struct Publisher {
    /// The address where it serves.
    pub(super) endpoint: String,
    process: std::process::Child,
    orders: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Publisher {
    /// Starts this program again as a publisher and waits for its address.
    ///
    /// # Errors
    /// The process cannot be started, or prints no address.
    pub(super) fn start(networks: &[[usize; 2]], fetches: Option<usize>, seed: u64) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("find this program")?;
        let networks: Vec<String> = networks.iter().copied().map(tower_name).collect();
        let mut command = Command::new(program);
        command.args([COMMAND, "--networks", &networks.join(","), "--seed", &seed.to_string()]);
        command.args(fetches.iter().flat_map(|fetches| ["--fetches".to_owned(), fetches.to_string()]));
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start the publisher")?;
        let orders = process.stdin.take().context("write to the publisher")?;
        let output = process.stdout.take().context("read the publisher's output")?;
        let mut publisher = Self { endpoint: String::new(), process, orders, output: BufReader::new(output) };
        publisher.endpoint = publisher.read_line()?;
        Ok(publisher)
    }

    /// Returns the id of its process.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Makes the process publish the next network.
    ///
    /// # Errors
    /// The process has ended.
    pub(super) fn publish(&mut self) -> anyhow::Result<()> {
        self.orders.write_all(b"\n").and_then(|()| self.orders.flush()).context("write to the publisher")
    }

    /// Returns the size in bytes of the last published version.
    ///
    /// # Errors
    /// The process has ended.
    pub(super) fn published_bytes(&mut self) -> anyhow::Result<u64> {
        let line = self.read_line()?;
        line.parse().with_context(|| format!("the publisher printed `{line}`"))
    }

    fn read_line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line).context("read the publisher's output")? == 0 {
            bail!("the publisher has ended");
        }
        Ok(line.trim().to_owned())
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        // The process may have ended by itself; its unfinished work is abandoned.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

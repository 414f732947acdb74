//! Serves weights as a learner does, with the service, server and version store of the learner, and networks of random
//! weights. Runs in a separate process, so that memory and CPU time can be measured. Each request publishes a version.

use std::io::Write;
use std::net::Ipv4Addr;

use anyhow::Context;
use games::ConnectFour;
use proto::weights::{Published, WeightsService};
use serde::Deserialize;
use serde_json::json;
use service::Drain;
use transport::security::Security;
use weights::{Manifest, WeightsVersion};

use crate::network::{numbers, random_weights};
use crate::own_process;
use crate::replay::load::PATIENCE;
use crate::script::{self, Script};

/// Versions kept, as by default in the learner.
const KEPT: usize = 4;
/// Threads for sockets, as in every process.
const WORKERS: usize = 2;
/// Subcommand with which this program starts itself as a publisher.
pub const COMMAND: &str = "publisher";

/// Options of `zerofleet-bench publisher`, and of the benchmark that starts it.
#[derive(Debug, Clone, clap::Args)]
pub struct PublisherArgs {
    /// Networks for Connect Four to publish in order, each BLOCKSxCHANNELS.
    #[arg(long, value_delimiter = ',', value_parser = tower, default_value = "6x64,20x256")]
    pub networks: Vec<[usize; 2]>,
    /// Concurrent fetches from the publisher [default: as in a learner].
    #[arg(long)]
    pub fetches: Option<usize>,
    /// Seed of the random weights.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Serves until standard input closes. Responds with the address, and then to each line, which publishes a version,
/// with the size of the version.
///
/// # Errors
/// A network cannot be built, or a port cannot be opened.
pub fn run(args: &PublisherArgs, out: &mut impl Write) -> anyhow::Result<()> {
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
    let serving = runtime.spawn(proto::weights::serve(service, None, Security::default(), listener, drain.token()));
    let mut networks = networks.iter().cycle();
    script::answer(out, json!({ "endpoint": format!("http://{address}") }), |version| {
        let Published { manifest, bytes } = networks.next().context("no network")?;
        publisher.publish(Manifest { version: WeightsVersion(version), ..manifest.clone() }, bytes.clone())?;
        Ok(bytes.len() as u64)
    })?;
    drain.start();
    runtime.block_on(serving)?.context("serve weights")
}

/// Parses the network size for Connect Four: residual blocks and channels.
pub(crate) fn tower(text: &str) -> Result<[usize; 2], String> {
    let size = numbers(text).filter(|size| !size.contains(&0));
    size.ok_or_else(|| format!("`{text}` is not a network: expected BLOCKSxCHANNELS, such as 6x64"))
}

/// Formats a network size as [`tower`] parses it.
pub(crate) fn tower_name([blocks, channels]: [usize; 2]) -> String {
    format!("{blocks}x{channels}")
}

fn made(network: [usize; 2], seed: u64) -> anyhow::Result<Published> {
    let made = random_weights(game::Game::spec(&ConnectFour::new()), network[0], network[1], seed);
    made.with_context(|| format!("create a network of {}", tower_name(network)))
}

/// First response of a publisher.
#[derive(Debug, Deserialize)]
struct Started {
    endpoint: String,
}

/// Starts this program again as a publisher, and also returns the address of the publisher.
///
/// # Errors
/// The process cannot be started, or prints no address.
pub(crate) fn start(args: &PublisherArgs) -> anyhow::Result<(Script, String)> {
    let PublisherArgs { networks, fetches, seed } = args;
    let networks: Vec<String> = networks.iter().copied().map(tower_name).collect();
    let mut arguments =
        vec![COMMAND.to_owned(), format!("--networks={}", networks.join(",")), format!("--seed={seed}")];
    arguments.extend(fetches.map(|fetches| format!("--fetches={fetches}")));
    let (script, Started { endpoint }) = Script::start(own_process::command(&arguments)?, PATIENCE)?;
    Ok((script, endpoint))
}

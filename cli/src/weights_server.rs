//! `zerofleet weights serve`: the process in the place of the learner in a run that a program of the user trains.
//!
//! It publishes the weights that the program writes to the directory [`Incoming`], with the ports, metrics and files of
//! a learner, so that no other process of the run differs. It computes no training step.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use proto::weights::WeightsService;
use run_file::learner::{Config, Settings};
use service::CommonArgs;
use transport::security::{Security, use_credentials};

use crate::incoming::Incoming;

/// Name of the process in logs and metrics, which is that of the role.
const NAME: &str = "learner";
/// Directory below the run directory that a learner locks.
const LOCKED: &str = "checkpoints";
/// Interval between checks for new weights.
const POLL: Duration = Duration::from_millis(200);
/// Maximum time for weights requests in progress to complete after the drain.
const SERVE_LAST: Duration = Duration::from_secs(2);

/// Serves weights until the process drains, and returns the exit status.
pub(crate) fn run(common: CommonArgs) -> ExitCode {
    service::run_parsed(NAME, common, games::preset, body)
}

fn body(config: Config, context: service::Context) -> service::Body {
    Box::pin(async move {
        let settings = config.settings()?;
        let security = Security::open(&config.security, context.listen)?;
        use_credentials(&config.security)?;
        // A learner in the same run directory would publish other weights under the same version numbers.
        let locked = settings.run.directory.join(LOCKED);
        service::directory::writable(&locked)?;
        let _lock = service::directory::lock(&locked)?;
        serve(settings, security, context).await
    })
}

async fn serve(settings: Settings, security: Security, context: service::Context) -> anyhow::Result<()> {
    let listener = service::net::bind(context.listen).await?;
    let (service, publisher) = WeightsService::new(settings.learner.versions_kept);
    let server = tokio::spawn(proto::weights::serve(service, None, security, listener, context.drain.token()));
    let open = move || Incoming::open(&settings, publisher);
    let mut incoming = tokio::task::spawn_blocking(open).await.context("join the first publication")??;
    context.readiness.ready();
    while context.drain.unless_started(tokio::time::sleep(POLL)).await.is_some() {
        let read = move || {
            incoming.read();
            incoming
        };
        incoming = tokio::task::spawn_blocking(read).await.context("join a publication")?;
    }
    // A client that watches the health of this process must not delay the exit.
    if let Ok(server) = tokio::time::timeout(SERVE_LAST, server).await {
        server.context("join the server")?.context("serve weights")?;
    }
    Ok(())
}

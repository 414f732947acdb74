//! `zerofleet weights serve`: the process in the place of the learner in a run that a program of the user trains.
//!
//! It publishes the weights that the program writes to the directory [`Incoming`], with the ports, metrics and files of
//! a learner, so that no other process of the run differs. It computes no training step.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use proto::weights::WeightsService;
use run_file::learner::{Config, Settings};
use service::{CommonArgs, Readiness};
use transport::security::{Security, use_credentials};

use crate::incoming::Incoming;

/// Name of the process in logs and metrics, which is that of the role.
const NAME: &str = "learner";
/// Directory below the run directory that a learner locks.
const LOCKED: &str = "checkpoints";
/// Interval between checks for new weights.
const POLL: Duration = Duration::from_millis(200);
/// Interval to the next check after a failed file operation, such as on a full disk.
const RETRY: Duration = Duration::from_secs(5);
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
    let mut pause = POLL;
    while context.drain.unless_started(tokio::time::sleep(pause)).await.is_some() {
        let work = move || {
            let read = incoming.read();
            (incoming, read)
        };
        let (returned, read) = tokio::task::spawn_blocking(work).await.context("join a publication")?;
        incoming = returned;
        pause = report(read, &context.readiness);
    }
    // A client that watches the health of this process must not delay the exit.
    if let Ok(server) = tokio::time::timeout(SERVE_LAST, server).await {
        server.context("join the server")?.context("serve weights")?;
    }
    Ok(())
}

/// Reports a failure once, and returns the interval to the next check. The process is not ready after a failure.
fn report(read: anyhow::Result<()>, readiness: &Readiness) -> Duration {
    let Err(error) = read else {
        readiness.ready();
        return POLL;
    };
    let reason = service::chain(&error);
    if readiness.reason().as_deref() != Some(reason.as_str()) {
        tracing::error!("{reason}; next try in {} s", RETRY.as_secs());
        readiness.not_ready(reason);
    }
    RETRY
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use version_store::VersionStore;

    use super::*;
    use crate::incoming::FOLDER;

    /// Starts a run of tic-tac-toe with a small network.
    fn start(run: &Path, seed: u64, initial_weights: &str) -> anyhow::Result<Incoming> {
        let mut config = Config::default();
        (config.run.game, config.run.directory, config.run.seed) = ("tic_tac_toe".to_owned(), run.to_owned(), seed);
        (config.network.channels, config.network.blocks) = (16, 1);
        config.learner.initial_weights = initial_weights.to_owned();
        Incoming::open(&config.settings().unwrap(), WeightsService::new(2).1)
    }

    /// Returns the number and the bytes of the latest stored version.
    fn newest(run: &Path) -> (u64, Vec<u8>) {
        let (manifest, bytes) = VersionStore::of_learner(run).newest().unwrap().unwrap();
        (manifest.version.0, bytes)
    }

    #[test]
    fn a_new_run_begins_with_the_initial_weights_which_a_second_start_ignores() {
        let (given, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        start(given.path(), 1, "").unwrap();
        start(run.path(), 2, given.path().join("weights/v000001.json").to_str().unwrap()).unwrap();
        assert!(newest(run.path()) == newest(given.path()));
        start(run.path(), 2, "none").unwrap();
        fs::remove_dir_all(run.path().join("weights")).unwrap();
        let error = start(run.path(), 2, "none").unwrap_err().to_string();
        assert!(error.starts_with("learner.initial_weights: none is no model"), "{error}");
    }

    #[test]
    fn weights_stay_until_they_are_stored_and_answered_and_are_published_once() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        let mut incoming = start(run, 1, "").unwrap();
        let (_, bytes) = newest(run);
        let file = |name: &str| run.join(FOLDER).join(name);
        let [first, second] = ["000001.safetensors", "000002.safetensors"].map(file);
        // A directory in the way has the effect of a full disk.
        let in_the_way = run.join("weights/v000002.safetensors");
        fs::create_dir(&in_the_way).unwrap();
        fs::write(&first, &bytes).unwrap();
        let error = incoming.read().unwrap_err().to_string();
        assert!(error.starts_with("store weights v2 in "), "{error}");
        assert!(first.exists() && !file("000001.json").exists());
        fs::remove_dir(&in_the_way).unwrap();
        incoming.read().unwrap();
        assert!(!first.exists() && file("000001.json").exists() && newest(run).0 == 2);

        fs::create_dir(file(&format!("000002.json.{}.new", std::process::id()))).unwrap();
        fs::write(&second, &bytes).unwrap();
        incoming.read().unwrap_err();
        incoming.read().unwrap();
        assert!(second.exists() && newest(run).0 == 3, "the same weights are published once");
        fs::write(file("000004.safetensors"), &bytes).unwrap();
        incoming.read().unwrap();
        assert!(!second.exists() && newest(run).0 == 4, "the next start publishes no older weights");
    }

    #[test]
    fn the_process_is_ready_again_after_a_failure() {
        let readiness = Readiness::starting();
        assert_eq!(report(Err(anyhow::anyhow!("disk full").context("store")), &readiness), RETRY);
        assert_eq!(readiness.reason().as_deref(), Some("store: disk full"));
        assert_eq!((report(Ok(()), &readiness), readiness.reason()), (POLL, None));
    }
}

//! Loads weights, continuously from a learner or once from a file. Each version is built and warmed up before it is
//! served.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use evaluators::Backend;
use game::{Action, Spec};
use inference::{Batch, Evaluator, Predictions};
use proto::weights::{Published, Subscriber, SubscriberSettings};
use service::{Drain, Readiness};
use weights::Model;

use crate::engine::Handle;
use crate::metrics;
use crate::versions::{Version, Versions};

/// Builds served versions from weights.
pub(crate) struct Loader {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) spec: Spec,
    pub(crate) threads: usize,
    /// Number of positions in the largest warm-up batch; 0 uses the evaluator's preferred size.
    pub(crate) batch_max: usize,
    pub(crate) versions: Arc<Versions>,
    pub(crate) handle: Handle,
    pub(crate) readiness: Readiness,
}

impl Loader {
    /// Loads every version that `subscriber` receives, until the drain.
    pub(crate) async fn follow(self: Arc<Self>, settings: SubscriberSettings, drain: Drain) {
        let mut subscriber = Subscriber::start(settings);
        while let Some(published) = drain.unless_started(subscriber.changed()).await {
            let version = published.manifest.version;
            let loader = Arc::clone(&self);
            let loaded = tokio::task::spawn_blocking(move || loader.load(&published)).await;
            if let Err(error) = loaded.context("join the loading thread").and_then(|loaded| loaded) {
                let error = service::chain(&error);
                if self.handle.model().is_none() {
                    self.readiness.not_ready(format!("weights {version} cannot be used: {error}"));
                    tracing::error!(%version, error, "cannot use weights; there are no others");
                } else {
                    tracing::error!(%version, error, "cannot use weights; serving the previous version");
                }
            }
        }
        subscriber.close().await;
    }

    /// Builds and warms up an evaluator for each thread, and makes the version the latest.
    pub(crate) fn load(&self, published: &Published) -> anyhow::Result<()> {
        let manifest = evaluators::suited(&published.manifest, &self.spec)?;
        let model = manifest.architecture.model;
        ensure!(
            model == Model::Alphazero,
            "the server supports only AlphaZero networks, which predict win, draw and loss, not {model:?}"
        );
        let build = |_| self.backend.build(&manifest, &published.bytes);
        let mut evaluators: Vec<Box<dyn Evaluator>> = (0..self.threads).map(build).collect::<Result<_, _>>()?;
        // An engine serves all threads and selects kernels once.
        let warmed = if self.backend.engine_counts().is_some() { 1 } else { evaluators.len() };
        for evaluator in evaluators.iter_mut().take(warmed) {
            self.warm_up(evaluator.as_mut()).context("evaluate with the new weights")?;
        }
        let preferred = evaluators.first().map_or(1, |evaluator| self.largest(evaluator.as_ref()));
        let version = Version::new(manifest.clone(), evaluators);
        let evaluator = Arc::clone(&version.name);
        // Requests for the version are divided into batches of this size.
        self.handle.loaded(preferred);
        self.versions.add(version);
        self.readiness.ready();
        metrics::weights_version(manifest.version.0, self.versions.numbers().len());
        metrics::evaluator(&evaluator, manifest.version.0);
        tracing::info!(version = %manifest.version, evaluator = &*evaluator, "serving new weights");
        Ok(())
    }

    /// Returns the number of positions in the largest batch to warm up.
    fn largest(&self, evaluator: &dyn Evaluator) -> usize {
        let attributes = evaluator.attributes();
        let most = if self.batch_max == 0 { attributes.preferred_batch } else { self.batch_max };
        most.clamp(1, attributes.max_batch)
    }

    /// Evaluates one batch of each size, because the first batch of a size selects kernels and grows buffers, which
    /// should not delay a request. This also detects results that are not finite.
    fn warm_up(&self, evaluator: &mut dyn Evaluator) -> Result<(), inference::Error> {
        let most = self.largest(evaluator);
        let legal: Vec<Action> =
            (0..self.spec.actions).filter_map(|action| u16::try_from(action).ok()).map(Action).collect();
        let (mut batch, mut predictions) = (Batch::new(self.spec.observation), Predictions::new());
        let mut size = 1;
        loop {
            while batch.len() < size {
                batch.push(&legal, |_| {});
            }
            evaluator.evaluate(&batch, &mut predictions)?;
            if size == most {
                return Ok(());
            }
            size = (2 * size).min(most);
        }
    }
}

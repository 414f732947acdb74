//! The identity of a process in log lines, metrics and traces.

use crate::config::RunSection;
use crate::machine;

/// Version of the package. The commit is appended if the build had `ZEROFLEET_COMMIT` in the environment.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const COMMIT: Option<&str> = option_env!("ZEROFLEET_COMMIT");

/// The fields that identify a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Role of the process: `actor`, `replay-server` and so on.
    pub role: &'static str,
    /// Name of the run.
    pub run: String,
    /// Name of the game.
    pub game: String,
    /// Version of the program.
    pub version: String,
    /// Host name and process id.
    pub instance: String,
}

impl Identity {
    /// Returns the identity of this process. The run is called `name`, or after the run directory if `name` is empty.
    pub fn new(role: &'static str, run: &RunSection, name: &str) -> Self {
        let folder = || run.directory.file_name().map(|folder| folder.to_string_lossy().into_owned());
        let run_name = if name.is_empty() { folder().unwrap_or_else(|| "default".to_owned()) } else { name.to_owned() };
        Self { role, run: run_name, game: run.game.clone(), version: version(), instance: instance() }
    }

    /// Exports the identity as a metric.
    pub(crate) fn export_metric(&self) {
        let Self { role, run, game, version, .. } = self.clone();
        let info = metrics::gauge!(
            "zerofleet_process_info", "role" => role, "version" => version, "run" => run, "game" => game
        );
        info.set(1.0);
    }
}

/// Returns the program's version: `0.3.0`, or `0.3.0+1a2b3c4`.
#[must_use]
pub fn version() -> String {
    match COMMIT {
        Some(commit) if !commit.is_empty() => format!("{VERSION}+{commit}"),
        _ => VERSION.to_owned(),
    }
}

fn instance() -> String {
    let host = machine::host_name();
    format!("{}:{}", host.as_deref().unwrap_or("localhost"), std::process::id())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn run(directory: &str) -> RunSection {
        RunSection { directory: PathBuf::from(directory), ..RunSection::default() }
    }

    #[test]
    fn a_run_is_called_like_its_folder_unless_it_has_a_name() {
        assert_eq!(Identity::new("actor", &run("runs/hex"), "").run, "hex");
        assert_eq!(Identity::new("actor", &run("/data"), "nightly").run, "nightly");
        assert_eq!(Identity::new("actor", &run("/"), "").run, "default");
    }

    #[test]
    fn every_process_exports_its_identity() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let identity = Identity { version: "1.2.3+abc".to_owned(), ..Identity::new("arena", &run("runs/hex"), "") };
        metrics::with_local_recorder(&recorder, || identity.export_metric());
        let text = recorder.handle().render();
        let line = "zerofleet_process_info{role=\"arena\",version=\"1.2.3+abc\",run=\"hex\",game=\"connect_four\"} 1";
        assert!(text.contains(line), "{text}");
    }
}

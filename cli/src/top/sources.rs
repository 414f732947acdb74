//! Finds the admin addresses of all processes of a fleet.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::ensure;

use fleet::Listed;
use fleet::admin_hosts::{ADDRESSES_MAX, LOOKUP_INTERVAL, or_services, resolve};
use fleet::run_directory::RunDirectory;

use crate::printed_command;

/// The source of admin addresses, and the result of the last resolution.
#[derive(Debug)]
pub(super) struct Sources {
    /// File in which the supervisor of a run lists the processes.
    list: Option<PathBuf>,
    /// Admin ports as HOST:PORT, used if there is no list of a supervisor.
    admins: Vec<String>,
    found: BTreeMap<SocketAddr, String>,
    looked_up: Option<Instant>,
}

impl Sources {
    pub(super) fn new(admins: &[String], run: Option<&str>, runs: &Path) -> anyhow::Result<Self> {
        let run = run.map(|run| RunDirectory::existing(runs, run)).transpose()?;
        let list = run.as_ref().map(RunDirectory::fleet);
        if let Some(run) = &run {
            let (name, command) = (run.name(), printed_command::train(run));
            ensure!(run.is_trained(), "run {name} is not being trained; continue it with {command}");
        }
        let admins = or_services(admins.to_vec());
        Ok(Self { list, admins, found: BTreeMap::new(), looked_up: None })
    }

    /// Returns the admin addresses and names of the listed processes.
    pub(super) fn processes(&mut self, now: Instant) -> Vec<(SocketAddr, String)> {
        if self.looked_up.is_none_or(|then| now.duration_since(then) >= LOOKUP_INTERVAL) {
            self.looked_up = Some(now);
            self.found = self.list.as_deref().map_or_else(|| resolve(&self.admins), listed);
        }
        self.found.iter().map(|(address, name)| (*address, name.clone())).collect()
    }
}

/// Reads the process list of a supervisor; the result is empty if the file is missing or invalid.
fn listed(file: &Path) -> BTreeMap<SocketAddr, String> {
    let list: Vec<Listed> = fleet::read_list(file).unwrap_or_default();
    list.into_iter().take(ADDRESSES_MAX).map(|listed| (listed.admin, listed.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_one_process_and_an_unknown_host_name_is_none() {
        let names = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1", "no.such.host.invalid:1"].map(str::to_owned);
        let mut sources = Sources::new(&names, None, Path::new("runs")).unwrap();
        let found = sources.processes(Instant::now());
        let addresses: Vec<String> = found.iter().map(|(address, _)| address.to_string()).collect();
        assert_eq!(addresses, ["127.0.0.1:1", "127.0.0.1:2"]);
    }

    #[test]
    fn the_process_list_of_a_run_is_read_again_after_an_interval() {
        let runs = tempfile::tempdir().unwrap();
        let run = runs.path().join("first");
        std::fs::create_dir(&run).unwrap();
        std::fs::write(run.join("config.toml"), "").unwrap();
        let open = || Sources::new(&[], Some("first"), runs.path());
        assert!(open().unwrap_err().to_string().contains("is not being trained"));
        let list = |port: u16| format!(r#"[{{"name":"actor-0","role":"actor","admin":"127.0.0.1:{port}"}}]"#);
        std::fs::write(run.join("fleet.json"), list(4001)).unwrap();
        assert!(open().is_err(), "the list of a session that has ended");
        let _lock = RunDirectory::existing(runs.path(), "first").unwrap().lock().unwrap();
        let (mut sources, now) = (open().unwrap(), Instant::now());
        assert_eq!(sources.processes(now), [("127.0.0.1:4001".parse().unwrap(), "actor-0".to_owned())]);
        std::fs::write(run.join("fleet.json"), list(4002)).unwrap();
        assert_eq!(sources.processes(now)[0].0.port(), 4001, "not at every poll");
        let later = now + LOOKUP_INTERVAL;
        assert_eq!(sources.processes(later)[0].0.port(), 4002);
        std::fs::write(run.join("fleet.json"), "not JSON").unwrap();
        assert!(sources.processes(later + LOOKUP_INTERVAL).is_empty(), "an invalid list is not an error");
    }
}

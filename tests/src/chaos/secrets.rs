//! Certificates and tokens of the fleet, made and renewed with `cargo xtask certs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use service::SecuritySection;

use super::fault::{ACTORS, Service};
use crate::process::{program, run};

/// Files of a client, with configuration keys.
const CLIENT: [(&str, &str); 4] =
    [("ca", "ca.pem"), ("client_certificate", "client.pem"), ("client_key", "client.key"), ("token_file", "token")];
/// Files of a server, with configuration keys.
const SERVER: [(&str, &str); 4] =
    [("certificate", "server.pem"), ("key", "server.key"), ("client_ca", "ca.pem"), ("tokens", "tokens")];
/// Files that a renewal replaces. Token files stay: other processes know only the old tokens.
const RENEWED: [&str; 4] = ["client.key", "client.pem", "server.key", "server.pem"];

/// Role with the credentials for clients of the test.
const OPERATOR: &str = "operator";

/// Secrets of all processes, each in a separate directory.
#[derive(Debug)]
pub(super) struct Secrets {
    /// Directory in which `xtask` makes the secrets, by role.
    made: PathBuf,
    /// Directory of the secrets in use, by process.
    used: PathBuf,
    names: String,
}

impl Secrets {
    /// Makes the secrets below `folder`; servers have the addresses in `names`.
    ///
    /// # Errors
    /// `xtask` is not built, or fails.
    pub(super) fn new(folder: &Path, names: &[String]) -> anyhow::Result<Self> {
        let secrets = Self { made: folder.join("made"), used: folder.join("used"), names: names.join(",") };
        secrets.make(&[])?;
        for service in Service::all() {
            let (role, own) = (role(service), secrets.of(service));
            CLIENT.iter().chain(&SERVER).try_for_each(|(_, file)| secrets.give(&role, &own, file))?;
        }
        CLIENT.iter().try_for_each(|(_, file)| secrets.give(OPERATOR, &secrets.used.join(OPERATOR), file))?;
        Ok(secrets)
    }

    /// Returns the settings of a process.
    pub(super) fn settings(&self, service: Service) -> Vec<String> {
        let own = self.of(service);
        let serves = own.join("server.pem").exists();
        let keys = CLIENT.into_iter().chain(SERVER.into_iter().filter(|_| serves));
        let keys = keys.filter(|(_, file)| own.join(file).exists());
        keys.map(|(key, file)| format!("security.{key}={}", own.join(file).display())).collect()
    }

    /// Returns the credentials of an operator.
    pub(super) fn of_operator(&self) -> SecuritySection {
        let file = |name| self.used.join(OPERATOR).join(name);
        SecuritySection {
            ca: file("ca.pem"),
            client_certificate: file("client.pem"),
            client_key: file("client.key"),
            token_file: file("token"),
            ..SecuritySection::default()
        }
    }

    /// Replaces certificates and keys of a process by new ones from the same authority.
    ///
    /// # Errors
    /// `xtask` fails, or a file cannot be replaced.
    pub(super) fn renew(&self, service: Service) -> anyhow::Result<()> {
        self.make(&["--renew"])?;
        let own = self.of(service);
        RENEWED.iter().try_for_each(|file| self.give(&role(service), &own, file))
    }

    fn make(&self, options: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(program("xtask")?);
        let command = command.args(["certs", "--names", &self.names, "--actors"]).arg(ACTORS.to_string());
        run(command.args(options).arg("--out").arg(&self.made))?;
        Ok(())
    }

    /// Copies a file of a role, if present, into the directory of a process; replaces an old file.
    fn give(&self, role: &str, own: &Path, file: &str) -> anyhow::Result<()> {
        let made = self.made.join(role).join(file);
        if !made.exists() {
            return Ok(());
        }
        let (new, old) = (own.join("new"), own.join(file));
        let copied = fs::create_dir_all(own).and_then(|()| fs::copy(&made, &new));
        copied.and_then(|_| fs::rename(&new, &old)).with_context(|| format!("replace {}", old.display()))
    }

    fn of(&self, service: Service) -> PathBuf {
        self.used.join(service.to_string().replace(' ', "-"))
    }
}

/// Returns the role with the credentials of a process: each actor has a token that inserts as no other actor.
fn role(service: Service) -> String {
    match service {
        Service::Actor(id) => format!("actor-{id}"),
        other => other.role().name().to_owned(),
    }
}

//! Finds the replay servers of a run, and limits how long requests to them take. Start with [`Servers::of`].

use std::time::Duration;

use fleet::run_directory::ReplayServer;
use proto::replay::{Inspector, RequestError};
use tokio::time::timeout;

use crate::problem::{Problem, blocking};
use crate::site::Site;

/// Time limit of a request to a replay server, below the time limit of a page.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The replay servers of a run, of which one is selected.
#[derive(Debug)]
pub(crate) struct Servers {
    /// Names of all servers: `2`, `go-7/1`.
    pub(crate) names: Vec<String>,
    /// Name of the selected server.
    pub(crate) name: String,
    /// Connects to the selected server with the first request.
    pub(crate) inspector: Inspector,
}

impl Servers {
    /// Finds the servers, and selects the server `wanted`, or the first if the text is empty.
    pub(crate) async fn of(site: &Site, wanted: &str) -> Result<Self, Problem> {
        let mut servers = all(site).await?;
        let names: Vec<String> = servers.iter().map(|(name, _)| name.clone()).collect();
        let index = names.iter().position(|name| wanted.is_empty() || name == wanted);
        let Some(index) = index else {
            let all = names.join(", ");
            return Err(Problem::invalid(format!("There is no replay server `{wanted}`; the servers are {all}.")));
        };
        let (name, inspector) = servers.swap_remove(index);
        Ok(Self { names, name, inspector })
    }
}

/// Returns all servers by name, at least one. An inspector connects with the first request.
pub(crate) async fn all(site: &Site) -> Result<Vec<(String, Inspector)>, Problem> {
    check_session(site)?;
    let run = site.settings.run.clone();
    let servers = blocking(move || run.reach_replay_servers()).await?;
    if servers.is_empty() {
        return Err(Problem::unavailable("The session has not started a replay server yet."));
    }
    let failed = |error| Problem::unavailable(RequestError::Endpoint(error).explained());
    servers.iter().map(|server| Ok((name(server), Inspector::new(&server.endpoint).map_err(failed)?))).collect()
}

/// Checks that a session trains the run.
pub(crate) fn check_session(site: &Site) -> Result<(), Problem> {
    if site.snapshot().is_trained { Ok(()) } else { Err(Problem::unavailable(without_session(site))) }
}

/// Says that no replay server runs, in a sentence.
pub(crate) fn without_session(site: &Site) -> String {
    let command = format!("zerofleet replay ls --run {}", site.settings.run.name());
    format!("No session trains the run, so no replay server runs. The command {command} lists the stored games.")
}

fn name(server: &ReplayServer) -> String {
    let number = server.number;
    server.board.as_ref().map_or_else(|| number.to_string(), |board| format!("{board}/{number}"))
}

/// Waits for the response to a request, with a time limit.
pub(crate) async fn within<T>(request: impl Future<Output = Result<T, RequestError>>) -> Result<T, Problem> {
    match timeout(TIMEOUT, request).await {
        Ok(Err(error)) if error.is_refused() => Err(Problem::invalid(error.explained())),
        Ok(result) => result.map_err(|error| Problem::unavailable(error.explained())),
        Err(_) => {
            let seconds = TIMEOUT.as_secs();
            Err(Problem::unavailable(format!("The replay server did not respond within {seconds} s.")))
        }
    }
}

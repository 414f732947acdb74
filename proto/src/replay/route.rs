//! Chooses the replay server for new trajectories, as a pure state machine.
//!
//! It depends on no sockets, tasks or clock: the driver is the router of an actor, or a simulator. Start with
//! [`Route::steer`].

use std::sync::Arc;
use std::time::Duration;

use transport::servers::Server;

/// The state machine that chooses among several servers.
#[derive(Debug, Clone)]
pub struct Route {
    away_max: Duration,
    current: Option<Arc<str>>,
    failovers: u64,
}

/// The state of the link to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// No link to the server is open.
    Missing,
    /// The server is away: see [`UploadStatus::away_for`](super::UploadStatus::away_for).
    Away(Duration),
    /// The server accepts trajectories.
    Works,
}

/// Links to all servers, provided by the driver.
pub trait Links {
    /// Opens a link to a server, if there is none and another link may be opened.
    fn open(&mut self, server: &Server);
    /// Returns the state of the link to a server.
    fn state(&self, server: &Server) -> LinkState;
}

impl Route {
    /// Creates a route without a server. A server may be away for `away_max` before another server is used.
    #[must_use]
    pub fn new(away_max: Duration) -> Self {
        Self { away_max, current: None, failovers: 0 }
    }

    /// Returns the id of the server that receives new trajectories.
    #[must_use]
    pub fn current(&self) -> Option<&Arc<str>> {
        self.current.as_ref()
    }

    /// Returns the number of changes to another server.
    #[must_use]
    pub fn failovers(&self) -> u64 {
        self.failovers
    }

    /// Chooses the server among `ranked`, the most preferred first, by the link states. The driver calls this
    /// repeatedly.
    pub fn steer(&mut self, ranked: &[Server], links: &mut impl Links) {
        let reached = self.first_reached(ranked, links);
        let stays = self.current.clone().filter(|id| ranked.is_empty() || ranked.iter().any(|server| server.id == *id));
        let is_linked = |server: &&Server| links.state(server) != LinkState::Missing;
        let first = || ranked.iter().find(is_linked).map(|server| Arc::clone(&server.id));
        let next = reached.or(stays).or_else(first).or_else(|| self.current.clone());
        if next == self.current {
            return;
        }
        if let (Some(from), Some(to)) = (&self.current, &next) {
            self.failovers += 1;
            tracing::info!(from = &**from, to = &**to, "switching to another replay server");
        }
        self.current = next;
    }

    /// Returns the most preferred server that accepts trajectories. `None` while a more preferred server has been
    /// away for less than the limit, and may still return.
    fn first_reached(&self, ranked: &[Server], links: &mut impl Links) -> Option<Arc<str>> {
        for server in ranked {
            links.open(server);
            match links.state(server) {
                LinkState::Works => return Some(Arc::clone(&server.id)),
                LinkState::Away(away) if away >= self.away_max => {}
                LinkState::Away(_) | LinkState::Missing => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const AWAY_MAX: Duration = Duration::from_secs(10);

    /// Links by server name; unlisted servers cannot be opened.
    struct Listed(BTreeMap<String, LinkState>);

    impl Links for Listed {
        fn open(&mut self, _: &Server) {}

        fn state(&self, server: &Server) -> LinkState {
            self.0.get(&*server.id).copied().unwrap_or(LinkState::Missing)
        }
    }

    /// Steers among the servers a, b and c with links in these states; returns the choice.
    fn steer(route: &mut Route, states: [LinkState; 3]) -> Option<String> {
        let names = ["a", "b", "c"];
        let servers = names.map(Server::at);
        route.steer(&servers, &mut Listed(names.map(str::to_owned).into_iter().zip(states).collect()));
        route.current().map(ToString::to_string)
    }

    #[test]
    fn the_first_that_works_is_used_once_those_before_are_away_for_too_long() {
        use LinkState::{Away, Missing, Works};
        let mut route = Route::new(AWAY_MAX);
        let choices = [
            ([Away(Duration::ZERO), Works, Works], "a"),
            ([Works, Works, Works], "a"),
            ([Away(AWAY_MAX / 2), Works, Works], "a"),
            ([Away(AWAY_MAX), Works, Works], "b"),
            ([Away(AWAY_MAX), Away(AWAY_MAX / 2), Works], "b"),
            ([Away(AWAY_MAX), Missing, Works], "b"),
            ([Away(AWAY_MAX); 3], "b"),
            ([Away(AWAY_MAX), Away(AWAY_MAX), Works], "c"),
            ([Works, Works, Works], "a"),
        ];
        for (states, expected) in choices {
            assert_eq!(steer(&mut route, states).as_deref(), Some(expected), "{states:?}");
        }
        assert_eq!(route.failovers(), 3);
    }

    #[test]
    fn a_server_that_is_gone_is_left_and_without_any_the_last_one_stays() {
        let mut route = Route::new(AWAY_MAX);
        assert_eq!(steer(&mut route, [LinkState::Missing; 3]), None);
        assert_eq!(steer(&mut route, [LinkState::Works; 3]).as_deref(), Some("a"));
        let mut links = Listed(BTreeMap::from([("b".to_owned(), LinkState::Away(Duration::ZERO))]));
        route.steer(&[Server::at("b")], &mut links);
        assert_eq!(route.current().map(|id| &**id), Some("b"));
        route.steer(&[], &mut links);
        assert_eq!(route.current().map(|id| &**id), Some("b"));
    }
}

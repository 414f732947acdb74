//! Finds the admin ports of a fleet by the names of hosts. Start with [`resolve`].

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, ensure};

/// Host names of the services of a cluster, each with an admin port [`ADMIN_PORT`].
const SERVICES: [&str; 5] = ["replay", "learner", "inference", "actor", "arena"];
const ADMIN_PORT: u16 = 9100;

/// Interval between two resolutions of the host names.
pub const LOOKUP_INTERVAL: Duration = Duration::from_secs(3);
/// Maximum number of addresses used per host name.
pub const ADDRESSES_MAX: usize = 4096;

/// Checks that the text has the form HOST:PORT.
///
/// # Errors
/// The text has another form.
pub fn admin_address(text: &str) -> anyhow::Result<String> {
    let (host, port) = text.rsplit_once(':').context("expected HOST:PORT")?;
    ensure!(!host.is_empty() && !host.contains('/'), "expected HOST:PORT");
    port.parse::<u16>().context("expected a port from 0 to 65535")?;
    Ok(text.to_owned())
}

/// Returns `admins`, or the admin ports of all services of a cluster if there are none.
pub fn or_services(admins: Vec<String>) -> Vec<String> {
    if admins.is_empty() { SERVICES.map(|host| format!("{host}:{ADMIN_PORT}")).to_vec() } else { admins }
}

/// Resolves every HOST:PORT to addresses, each with the host; a host that cannot be resolved yields no address.
pub fn resolve(names: &[String]) -> BTreeMap<SocketAddr, String> {
    // Resolves each name in a separate thread, so that a slow name server delays only one name.
    let answers = std::thread::scope(|scope| {
        let threads: Vec<_> = names.iter().map(|name| scope.spawn(move || name.to_socket_addrs())).collect();
        threads.into_iter().map(|thread| thread.join().ok()?.ok()).collect::<Vec<_>>()
    });
    let mut found = BTreeMap::new();
    for (name, addresses) in names.iter().zip(answers) {
        let addresses: Vec<SocketAddr> = addresses.into_iter().flatten().collect();
        // A host with both IPv4 and IPv6 addresses is one process.
        let family = addresses.first().map(SocketAddr::is_ipv4);
        for address in addresses.into_iter().filter(|address| Some(address.is_ipv4()) == family).take(ADDRESSES_MAX) {
            let host = name.rsplit_once(':').map_or(name.as_str(), |(host, _)| host);
            found.entry(address).or_insert_with(|| host.trim_matches(['[', ']']).to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_port_is_a_host_and_a_port() {
        assert_eq!(admin_address("actor:9100").unwrap(), "actor:9100");
        assert_eq!(resolve(&["[::1]:9100".to_owned()]).into_values().collect::<Vec<_>>(), ["::1"]);
        for wrong in ["actor", ":9100", "actor:", "actor:99999", "http://actor:9100"] {
            assert!(admin_address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_services_of_a_cluster_are_the_default() {
        let expected = ["replay:9100", "learner:9100", "inference:9100", "actor:9100", "arena:9100"];
        assert_eq!(or_services(Vec::new()), expected);
        assert_eq!(or_services(vec!["a:1".to_owned()]), ["a:1"]);
    }
}

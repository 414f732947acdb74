use game::mix;

use super::Server;

/// The servers in the order in which `client` prefers them: rendezvous hashing (Thaler and Ravishankar 1998).
///
/// Each client ranks the servers by a hash of both ids. Clients spread evenly; a server that joins takes its share from
/// all others and moves no other client, one that leaves passes its clients to their next choice. The order is the same
/// in every process and build.
#[must_use]
pub fn preferred(servers: &[Server], client: u64) -> Vec<Server> {
    let mut ranked = servers.to_vec();
    ranked.sort_by_cached_key(|server| (std::cmp::Reverse(score(&server.id, client)), server.id.clone()));
    ranked
}

/// A client that has a name and no number.
pub(crate) fn named(name: &str) -> u64 {
    score(name, 0)
}

/// FNV-1a over the id, then [`mix`] with the client: FNV alone leaves the high bits of short inputs alike.
fn score(id: &str, client: u64) -> u64 {
    let hash = id
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    mix(hash ^ mix(client))
}

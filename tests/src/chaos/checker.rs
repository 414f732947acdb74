//! Checks the histories of clients against the contents of the replay servers. Every function is pure.
//!
//! A replay server is checked as a set: an acknowledged trajectory is in every later list, and a trajectory that no
//! client has inserted is in none. The weights are checked as a register with versions that only grow, and never
//! change.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use experience::TrajectoryId;

use super::history::{Call, Disturbance, Inserted, Operation};

/// First id of a client that records inserts; actors of the fleet have lower ids.
pub const FIRST_WITNESS: u64 = 1_000;

/// A list of the ids that a replay server holds, with the times of request and response.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Number of the replay server.
    pub server: u8,
    /// Time just before the request.
    pub invoked: Duration,
    /// Time just after the response.
    pub returned: Duration,
    /// Ids in the list.
    pub ids: Vec<TrajectoryId>,
}

/// Returns the violations of a list: missing ids, repeated ids, and ids that were never inserted into this server.
#[must_use]
pub fn violations_of_listing(history: &[Operation], listing: &Listing) -> Vec<String> {
    let &Listing { server, invoked, returned, ref ids } = listing;
    let (mut asked, mut acknowledged) = (BTreeSet::new(), BTreeSet::new());
    for operation in history {
        let Call::Insert { server: to, id, answer } = operation.call else { continue };
        if to == server && operation.invoked <= returned {
            asked.insert(id);
        }
        let is_stored = matches!(answer, Some(Inserted::New | Inserted::Duplicate | Inserted::Stored));
        if to == server && is_stored && operation.returned.is_some_and(|at| at <= invoked) {
            acknowledged.insert(id);
        }
    }
    let held: BTreeSet<_> = ids.iter().copied().collect();
    let mut found = Vec::new();
    if held.len() < ids.len() {
        found.push(format!("replay server {server} lists {} ids, {} of them different", ids.len(), held.len()));
    }
    let lost = acknowledged.difference(&held).map(|id| format!("{id} was acknowledged by {server}, and is lost"));
    let strange = held.difference(&asked).filter(|id| id.actor >= FIRST_WITNESS);
    found.extend(lost.chain(strange.map(|id| format!("{id} is held by {server}, and was never inserted there"))));
    found
}

/// Returns the violations of a whole run, in the last lists, insert responses, samples, requests and weights.
#[must_use]
pub fn violations(history: &[Operation], last: &[Listing], disturbances: &[Disturbance]) -> Vec<String> {
    let mut found: Vec<String> = last.iter().flat_map(|listing| violations_of_listing(history, listing)).collect();
    found.extend(held_twice(last));
    found.extend(wrong_answers(history));
    found.extend(wrong_samples(history, last));
    found.extend(failed_requests(history, disturbances));
    found.extend(wrong_weights(history));
    found
}

/// Checks that an id belongs to one replay server.
fn held_twice(last: &[Listing]) -> Vec<String> {
    let mut servers = BTreeMap::new();
    let all = last.iter().flat_map(|listing| listing.ids.iter().map(move |id| (*id, listing.server)));
    all.filter_map(|(id, server)| match servers.insert(id, server) {
        Some(other) if other != server => Some(format!("{id} is held by {other} and by {server}")),
        _ => None,
    })
    .collect()
}

/// Checks that an id is new only once, that nothing valid is refused, and that no client sends an id that another has
/// used.
fn wrong_answers(history: &[Operation]) -> Vec<String> {
    let mut found = Vec::new();
    let mut stored: BTreeMap<TrajectoryId, Vec<Inserted>> = BTreeMap::new();
    let mut answers: Vec<_> = history
        .iter()
        .filter_map(|operation| match operation.call {
            Call::Insert { id, answer: Some(answer), .. } => Some((operation.returned?, id, answer)),
            _ => None,
        })
        .collect();
    answers.sort_by_key(|(at, ..)| *at);
    for (_, id, answer) in answers {
        let before = stored.entry(id).or_default();
        if answer == Inserted::New && !before.is_empty() {
            found.push(format!("{id} was new after {before:?}"));
        }
        if matches!(answer, Inserted::Collision | Inserted::Refused) {
            found.push(format!("{id} was answered with {answer:?}"));
        }
        before.push(answer);
    }
    found
}

/// Checks that each sampled trajectory was inserted into the same server before, and is still there at the end.
fn wrong_samples(history: &[Operation], last: &[Listing]) -> Vec<String> {
    let mut found = BTreeSet::new();
    let held: BTreeSet<(u8, TrajectoryId)> =
        last.iter().flat_map(|listing| listing.ids.iter().map(move |id| (listing.server, *id))).collect();
    let mut first_invoked = BTreeMap::new();
    for operation in history {
        if let Call::Insert { server, id, .. } = operation.call {
            first_invoked.entry((server, id)).or_insert(operation.invoked);
        }
    }
    for operation in history {
        let (Call::Sample { server, ids }, Some(returned)) = (&operation.call, operation.returned) else { continue };
        for &id in ids.iter().filter(|id| id.actor >= FIRST_WITNESS) {
            if first_invoked.get(&(*server, id)).is_none_or(|invoked| *invoked > returned) {
                found.insert(format!("{id} was sampled from {server} before its insert"));
            }
            if !held.contains(&(*server, id)) {
                found.insert(format!("{id} was sampled from {server}, which does not hold it at the end"));
            }
        }
    }
    found.into_iter().collect()
}

/// Checks that requests for statistics and weights fail only while a fault disturbs them.
fn failed_requests(history: &[Operation], disturbances: &[Disturbance]) -> Vec<String> {
    let mut found = Vec::new();
    for operation in history {
        let Some(returned) = operation.returned else { continue };
        let failure = match &operation.call {
            Call::Stats { server, error: Some(error) } => format!("a request to {server} failed: {error}"),
            Call::Weights { version: None, .. } => "a subscription received no weights".to_owned(),
            _ => continue,
        };
        let meets = |fault: &&Disturbance| fault.from <= returned && operation.invoked <= fault.to;
        if !disturbances.iter().filter(meets).any(|fault| fault.may_fail) {
            found.push(format!("without a fault, at {:.1} s: {failure}", operation.invoked.as_secs_f64()));
        }
    }
    found
}

/// Checks the versions that readers receive. A reader never receives an older version than before, or an unpublished
/// version. A new subscription never receives an older version than any earlier call returned. A version always has the
/// same bytes.
fn wrong_weights(history: &[Operation]) -> Vec<String> {
    let mut found = Vec::new();
    let mut by_client: BTreeMap<&str, u64> = BTreeMap::new();
    let mut digests: BTreeMap<u64, &str> = BTreeMap::new();
    let mut returns = Vec::new();
    for operation in history {
        let Call::Weights { subscribes, version: Some(version), digest, published } = &operation.call else { continue };
        let (Some(returned), client, version) = (operation.returned, operation.client.as_str(), *version) else {
            continue;
        };
        let latest = by_client.entry(client).or_default();
        if version < *latest {
            found.push(format!("{client} received version {version} after {latest}"));
        }
        *latest = version.max(*latest);
        if version > *published {
            found.push(format!("{client} received version {version} before its publication: {published}"));
        }
        let first = *digests.entry(version).or_insert(digest);
        if first != digest {
            found.push(format!("version {version} has the digests {first} and {digest}"));
        }
        returns.push((returned, version));
        let seen = returns.iter().filter(|(at, _)| *at <= operation.invoked).map(|(_, version)| *version).max();
        if let Some(seen) = seen.filter(|seen| *subscribes && version < *seen) {
            found.push(format!("{client} subscribed and received version {version}; another client had {seen} before"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: [u8; 2] = [0, 1];

    fn id(sequence: u64) -> TrajectoryId {
        TrajectoryId { actor: FIRST_WITNESS, epoch: 1, sequence }
    }

    fn seconds(at: u64) -> Duration {
        Duration::from_secs(at)
    }

    fn operation(client: &str, invoked: u64, returned: Option<u64>, call: Call) -> Operation {
        Operation { client: client.to_owned(), invoked: seconds(invoked), returned: returned.map(seconds), call }
    }

    fn insert(invoked: u64, returned: Option<u64>, sequence: u64, answer: Option<Inserted>) -> Operation {
        operation("a", invoked, returned, Call::Insert { server: 0, id: id(sequence), answer })
    }

    fn sample(invoked: u64, server: u8, sequence: u64) -> Operation {
        operation("s", invoked, Some(invoked + 1), Call::Sample { server, ids: vec![id(sequence)] })
    }

    fn weights(client: &str, invoked: u64, version: u64) -> Operation {
        let (digest, subscribes) = (format!("of {version}"), client == "new");
        let call = Call::Weights { subscribes, version: Some(version), digest, published: 9 };
        operation(client, invoked, Some(invoked + 1), call)
    }

    fn lists(at: u64, [first, second]: [&[u64]; 2]) -> Vec<Listing> {
        let list = |server: u8, sequences: &[u64]| Listing {
            server,
            invoked: seconds(at),
            returned: seconds(at + 1),
            ids: sequences.iter().map(|&sequence| id(sequence)).collect(),
        };
        vec![list(SERVERS[0], first), list(SERVERS[1], second)]
    }

    /// Asserts that the only violation contains `text`.
    fn violates(text: &str, history: &[Operation], last: &[Listing]) {
        let found = violations(history, last, &[]);
        assert!(found.len() == 1 && found[0].contains(text), "{found:?}");
    }

    #[test]
    fn a_good_history_has_no_violations_and_a_result_that_is_unknown_may_be_either() {
        let history = [
            insert(0, Some(2), 0, Some(Inserted::New)),
            insert(1, Some(3), 1, Some(Inserted::Duplicate)),
            insert(4, Some(5), 0, Some(Inserted::Duplicate)),
            insert(4, None, 2, None),
            insert(4, None, 3, None),
            // It may be sampled before the acknowledgement.
            sample(0, 0, 0),
            weights("old", 1, 3),
            weights("new", 2, 3),
            // The follower may lag a new subscription.
            weights("follower", 4, 2),
            weights("follower", 6, 4),
        ];
        assert_eq!(violations(&history, &lists(10, [&[0, 1, 2], &[]]), &[]), [""; 0]);
    }

    #[test]
    fn an_acknowledged_insert_that_is_not_held_is_lost() {
        let history = [insert(0, Some(1), 0, Some(Inserted::Stored)), insert(0, Some(1), 1, Some(Inserted::New))];
        violates("0 was acknowledged by 0, and is lost", &history, &lists(10, [&[1], &[]]));
        // A list that was requested before the acknowledgement may lack the id.
        assert_eq!(violations_of_listing(&history, &lists(0, [&[], &[]])[0]), [""; 0]);
    }

    #[test]
    fn what_was_never_inserted_is_not_held_nor_held_by_another_server() {
        violates("was never inserted there", &[], &lists(10, [&[0], &[]]));
        let history = [insert(20, Some(21), 0, Some(Inserted::New))];
        violates("was never inserted there", &history, &lists(10, [&[0], &[]]));
        let found = violations(&[insert(0, Some(1), 0, Some(Inserted::New))], &lists(10, [&[0], &[0]]), &[]);
        assert!(found.iter().any(|text| text.contains("is held by 0 and by 1")), "{found:?}");
    }

    #[test]
    fn an_id_that_is_listed_twice_is_reported() {
        let history = [insert(0, Some(1), 0, Some(Inserted::New))];
        violates("2 ids, 1 of them different", &history, &lists(10, [&[0, 0], &[]]));
    }

    #[test]
    fn an_id_is_new_once_and_neither_collides_nor_is_refused() {
        let again = |answer| [insert(0, Some(1), 0, Some(Inserted::New)), insert(2, Some(3), 0, Some(answer))];
        violates("was new after [New]", &again(Inserted::New), &lists(10, [&[0], &[]]));
        violates("Collision", &again(Inserted::Collision), &lists(10, [&[0], &[]]));
        violates("Refused", &again(Inserted::Refused), &lists(10, [&[0], &[]]));
    }

    #[test]
    fn a_sample_of_what_was_not_inserted_yet_or_is_not_held_later_is_reported() {
        let inserted = insert(5, Some(6), 0, Some(Inserted::New));
        violates("before its insert", &[inserted.clone(), sample(3, 0, 0)], &lists(10, [&[0], &[]]));
        violates("does not hold it at the end", &[insert(0, None, 0, None), sample(3, 0, 0)], &lists(10, [&[], &[]]));
        let found = violations(&[inserted, sample(7, 1, 0)], &lists(10, [&[0], &[]]), &[]);
        assert_eq!(found.len(), 2, "from the other server: {found:?}");
    }

    #[test]
    fn requests_fail_only_during_a_fault_that_disturbs_them() {
        let request = Call::Stats { server: 0, error: Some("refused".to_owned()) };
        let nothing = Call::Weights { subscribes: true, version: None, digest: String::new(), published: 0 };
        let failed = [request, nothing].map(|call| operation("r", 5, Some(6), call));
        let disturbance = |from, to, may_fail| {
            let (what, from, to) = ("a fault".to_owned(), seconds(from), seconds(to));
            [Disturbance { what, from, to, may_fail }]
        };
        for (faults, violations_count) in [
            (disturbance(4, 5, true), 0),
            (disturbance(6, 8, true), 0),
            (disturbance(4, 8, false), 2),
            (disturbance(7, 8, true), 2),
        ] {
            assert_eq!(violations(&failed, &[], &faults).len(), violations_count, "{faults:?}");
        }
    }

    #[test]
    fn weights_that_go_back_or_change_or_come_too_early_are_reported() {
        violates("received version 2 after 3", &[weights("one", 0, 3), weights("one", 2, 2)], &[]);
        violates("another client had 3", &[weights("one", 0, 3), weights("new", 1, 2)], &[]);
        violates("before its publication", &[weights("one", 0, 10)], &[]);
        let mut other = weights("two", 0, 3);
        if let Call::Weights { digest, .. } = &mut other.call {
            digest.push('!');
        }
        violates("has the digests", &[weights("one", 0, 3), other], &[]);
    }
}

use std::future::{Ready, ready};
use std::sync::Mutex;

use futures::FutureExt as _;

use super::*;

/// The next result of a resolver, shared with the resolver.
type Answer = Arc<Mutex<Result<Vec<&'static str>, io::ErrorKind>>>;

fn endpoints(text: &str) -> Endpoints {
    text.parse().expect("these are endpoints")
}

/// Resolves a host and port at once.
type Resolver = Box<dyn Fn(Arc<str>, u16) -> Ready<io::Result<Vec<SocketAddr>>> + Send>;

fn answering(addresses: &[&'static str]) -> (Answer, Resolver) {
    let answer: Answer = Arc::new(Mutex::new(Ok(addresses.to_vec())));
    let shared = Arc::clone(&answer);
    let resolve = move |_: Arc<str>, port: u16| {
        let answer = shared.lock().expect("no holder of the lock panics").clone();
        let socket = |address: &&str| SocketAddr::new(address.parse().expect("an address"), port);
        ready(answer.map(|answer| answer.iter().map(socket).collect()).map_err(io::Error::from))
    };
    (answer, Box::new(resolve))
}

fn answer(answer: &Answer, next: Result<&[&'static str], io::ErrorKind>) {
    *answer.lock().expect("no holder of the lock panics") = next.map(<[_]>::to_vec);
}

/// Formats servers as `id@endpoint`, or as the id alone if both are equal.
fn shown(servers: &Servers) -> Vec<String> {
    let show = |Server { id, endpoint, .. }: &Server| {
        if id == endpoint { id.to_string() } else { format!("{id}@{endpoint}") }
    };
    servers.current().iter().map(show).collect()
}

/// Returns the set after the next change.
async fn next(servers: &mut Servers) -> Vec<String> {
    servers.changed().await;
    shown(servers)
}

/// Lets two lookups pass; the clock of the test is paused.
async fn a_while() {
    tokio::time::sleep(2 * LOOKUP_INTERVAL).await;
}

#[test]
fn one_endpoint_or_several_are_read_and_a_wrong_one_is_named() {
    assert_eq!(endpoints("http://a:1").to_string(), "http://a:1");
    assert_eq!(endpoints("http://a:1, http://[::1]:2").to_string(), "http://a:1,http://[::1]:2");
    for (wrong, named) in [("", ""), ("http://a:1,", ""), ("http://a:1,b:2", "b:2"), ("http://a:1;http://b:2", "")] {
        let error = wrong.parse::<Endpoints>().expect_err(wrong).to_string();
        assert!(error.contains(&format!("{named}`")) && error.contains("http://host:port"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn addresses_and_this_machine_are_servers_as_they_are_written() {
    let never = |_: Arc<str>, _: u16| -> Ready<io::Result<Vec<SocketAddr>>> { panic!("nothing is looked up") };
    let mut servers =
        Servers::resolved_by(&endpoints("http://localhost:7001,http://[::1]:7001,http://127.0.0.1:7001"), never);
    assert_eq!(shown(&servers), ["http://127.0.0.1:7001", "http://[::1]:7001", "http://localhost:7001"]);
    a_while().await;
    assert!(servers.changed().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn every_address_of_a_name_is_a_server_and_the_name_is_looked_up_again() {
    let (answer_sender, resolve) = answering(&["10.0.0.2", "10.0.0.1"]);
    let mut servers = Servers::resolved_by(&endpoints("http://replay:7001"), resolve);
    assert_eq!(next(&mut servers).await, ["http://10.0.0.1:7001", "http://10.0.0.2:7001"]);
    answer(&answer_sender, Ok(&["10.0.0.3", "10.0.0.2"]));
    assert_eq!(next(&mut servers).await, ["http://10.0.0.2:7001", "http://10.0.0.3:7001"]);
    a_while().await;
    assert!(servers.changed().now_or_never().is_none(), "the same answer is no change");
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_fails_leaves_the_servers_there() {
    let (answer_sender, resolve) = answering(&["10.0.0.1", "10.0.0.2"]);
    let mut servers = Servers::resolved_by(&endpoints("http://replay:7001"), resolve);
    let before = next(&mut servers).await;
    answer(&answer_sender, Err(io::ErrorKind::NotFound));
    a_while().await;
    assert_eq!(shown(&servers), before);
    answer(&answer_sender, Ok(&["10.0.0.2"]));
    assert_eq!(next(&mut servers).await, ["http://10.0.0.2:7001"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_with_a_name_of_its_own_is_the_same_under_another_address() {
    let (answer_sender, resolve) = answering(&["10.0.0.1"]);
    let mut servers = Servers::resolved_by(&endpoints("http://replay-0:7001"), resolve);
    assert_eq!(next(&mut servers).await, ["http://replay-0:7001@http://10.0.0.1:7001"]);
    answer(&answer_sender, Ok(&["10.0.0.9"]));
    assert_eq!(next(&mut servers).await, ["http://replay-0:7001@http://10.0.0.9:7001"]);
    assert!(servers.current()[0].has_own_name);
}

#[tokio::test(start_paused = true)]
async fn the_first_server_of_a_name_keeps_its_id_when_others_are_added() {
    let (answer_sender, resolve) = answering(&["10.0.0.2"]);
    let mut servers = Servers::resolved_by(&endpoints("http://replay:7001"), resolve);
    let first = "http://replay:7001@http://10.0.0.2:7001";
    assert_eq!(next(&mut servers).await, [first]);
    answer(&answer_sender, Ok(&["10.0.0.1", "10.0.0.2"]));
    assert_eq!(next(&mut servers).await, ["http://10.0.0.1:7001", first]);
    assert!(servers.current().iter().all(|server| !server.has_own_name));
    // The other server is not mistaken for the first, although it is now the only one.
    answer(&answer_sender, Ok(&["10.0.0.1"]));
    assert_eq!(next(&mut servers).await, ["http://10.0.0.1:7001"]);
    answer(&answer_sender, Ok(&["10.0.0.1", "10.0.0.2"]));
    assert_eq!(next(&mut servers).await, ["http://10.0.0.1:7001", first]);
}

#[tokio::test(start_paused = true)]
async fn a_server_with_addresses_of_both_families_is_one() {
    let (_, resolve) = answering(&["::2", "10.0.0.1"]);
    let mut servers = Servers::resolved_by(&endpoints("http://replay:7001"), resolve);
    assert_eq!(next(&mut servers).await, ["http://replay:7001@http://10.0.0.1:7001"]);
}

#[tokio::test(start_paused = true)]
async fn two_names_of_one_address_are_one_server() {
    let (_, resolve) = answering(&["10.0.0.1"]);
    let mut servers = Servers::resolved_by(&endpoints("http://a:7001,http://b:7001,http://a:7002"), resolve);
    let expected = ["http://a:7001@http://10.0.0.1:7001", "http://a:7002@http://10.0.0.1:7002"];
    assert_eq!(next(&mut servers).await, expected);
}

#[tokio::test(start_paused = true)]
async fn the_addresses_of_an_https_name_keep_the_name_that_their_certificates_have() {
    let (_, resolve) = answering(&["10.0.0.1"]);
    let mut servers = Servers::resolved_by(&endpoints("https://replay:7001,https://alias:7001"), resolve);
    assert_eq!(next(&mut servers).await, ["https://alias:7001@https://alias@10.0.0.1:7001"], "they are one server");
    let mut servers = Servers::resolved_by(&endpoints("https://replay@host:1"), answering(&["10.0.0.1"]).1);
    assert_eq!(next(&mut servers).await, ["https://replay@host:1@https://replay@10.0.0.1:1"]);
    let mut servers = Servers::resolved_by(&endpoints("https://replay"), answering(&["10.0.0.1", "10.0.0.2"]).1);
    assert_eq!(next(&mut servers).await, ["https://replay@10.0.0.1:443", "https://replay@10.0.0.2:443"]);
    for server in servers.current().iter() {
        assert_eq!(crate::check_endpoint(&server.endpoint), Ok(()));
    }
}

fn numbered(count: usize) -> Vec<Server> {
    (0..count).map(|number| Server::at(&format!("http://10.0.0.{number}:7001"))).collect()
}

/// 10000 clients over 4 servers: 2500 each, with a standard deviation of 43; the tolerance of 250 is nearly six
/// standard deviations.
#[test]
fn clients_spread_evenly_over_servers() {
    let servers = numbered(4);
    for server in &servers {
        let clients = (0..10_000).filter(|&client| preferred(&servers, client)[0] == *server).count();
        assert!((2250..=2750).contains(&clients), "{} is preferred by {clients}", server.id);
    }
}

#[test]
fn a_server_that_comes_or_goes_moves_only_its_own_clients() {
    let (before, after) = (numbered(4), numbered(5));
    for client in 0..1000 {
        let (old, new) = (preferred(&before, client), preferred(&after, client));
        assert!(new[0] == old[0] || new[0] == after[4], "client {client} moved between old servers");
        let others: Vec<_> = new.into_iter().filter(|server| *server != after[4]).collect();
        assert_eq!(others, old);
    }
}

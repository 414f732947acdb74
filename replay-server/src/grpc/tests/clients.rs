use std::time::Duration;

use service::SecuritySection;
use tokio_util::sync::CancellationToken;
use transport::security::{Credentials, Security};

use super::*;
use crate::clients::CLIENT_CREDIT;
use crate::grpc::ReplayService;
use crate::leases::Actors;
use crate::table_service::{Command, Handle, InsertReply};

/// SHA-256 hashes of the tokens `one` and `two`.
const TOKENS: &str = "one act 7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed\n\
                      two act 3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3\n";

/// A service without tables: the test receives the commands.
struct Service {
    endpoint: String,
    directory: tempfile::TempDir,
    commands: mpsc::Receiver<Command>,
}

impl Service {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tokens = directory.path().join("tokens");
        std::fs::write(&tokens, TOKENS).unwrap();
        let listener = service::net::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let section = SecuritySection { tokens, ..SecuritySection::default() };
        let security = Security::open(&section, address).unwrap();
        let (handle, commands) = Handle::new();
        let settings = Config::default().settings().unwrap();
        let actors = Actors::new(settings.heartbeat, INSERT_CREDIT);
        let service = ReplayService::new(settings, handle, actors, CancellationToken::new());
        let serving = transport::server(&security).add_service(proto::replay::service(service));
        tokio::spawn(serving.serve_with_incoming(transport::incoming(listener, 32, security)));
        Self { endpoint: format!("http://{address}"), directory, commands }
    }

    /// Opens a stream as `actor` with this token, and sends a full credit of trajectories.
    async fn offer(&self, token: &str, actor: u64) -> mpsc::Sender<v1::InsertRequest> {
        let token_file = self.directory.path().join(token);
        std::fs::write(&token_file, token).unwrap();
        let section = SecuritySection { token_file, ..SecuritySection::default() };
        let channel = transport::channel_with(&self.endpoint, Credentials::open(&section).unwrap()).unwrap();
        let (sender, receiver) = mpsc::channel(1000);
        let hello = v1::Hello { actor, epoch: 1, game: GAME.into(), ..v1::Hello::default() };
        sender.send(wrap(In::Hello(hello))).await.unwrap();
        for sequence in 0..u64::from(INSERT_CREDIT) {
            sender.send(wrap(In::Trajectory(message_of(actor, sequence, 0.5, 7)))).await.unwrap();
        }
        tokio::spawn(async move {
            let mut answers = proto::replay::client(channel).insert(ReceiverStream::new(receiver)).await?.into_inner();
            while answers.message().await?.is_some() {}
            Ok::<_, Status>(())
        });
        sender
    }

    async fn next(&mut self) -> Command {
        tokio::time::timeout(Duration::from_secs(60), self.commands.recv()).await.expect("a command in time").unwrap()
    }

    /// Returns the actor and reply channel of the next insert.
    async fn next_insert(&mut self) -> (u64, InsertReply) {
        loop {
            match self.next().await {
                Command::Insert { trajectory, reply, .. } => return (trajectory.id().actor, reply),
                Command::HighestEpoch(_, reply) => reply.send(0).unwrap(),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn a_client_with_many_streams_leaves_another_its_part_and_gets_each_credit_back_with_an_answer() {
    let mut service = Service::start().await;
    let mut open = Vec::new();
    for actor in 1..=4 {
        open.push(service.offer("one", actor).await);
    }
    let mut unanswered = Vec::new();
    for _ in 0..CLIENT_CREDIT {
        let (actor, reply) = service.next_insert().await;
        unanswered.push(reply);
        assert!(actor <= 4);
    }
    open.push(service.offer("two", 5).await);
    for _ in 0..INSERT_CREDIT {
        let (actor, reply) = service.next_insert().await;
        unanswered.push(reply);
        assert_eq!(actor, 5, "the credits of the other client are used up");
    }
    unanswered.swap_remove(0);
    assert!(service.next_insert().await.0 <= 4);
}

#[tokio::test]
async fn streams_that_wait_for_a_credit_leave_their_clients_turn_to_others() {
    let mut service = Service::start().await;
    let _other = service.offer("two", 5).await;
    let mut unanswered = vec![service.next_insert().await];
    let mut open = Vec::new();
    for actor in 1..=4 {
        open.push(service.offer("one", actor).await);
    }
    while unanswered.len() < CLIENT_CREDIT + INSERT_CREDIT as usize {
        unanswered.push(service.next_insert().await);
    }
    open.push(service.offer("one", 6).await);
    while !matches!(service.next().await, Command::HighestEpoch(6, _)) {}
}

#[tokio::test]
async fn a_client_with_one_stream_has_as_many_messages_handled_as_one_with_many() {
    let mut service = Service::start().await;
    let (mut open, mut hellos) = (Vec::new(), Vec::new());
    for actor in 1..=8 {
        open.push(service.offer("one", actor).await);
    }
    open.push(service.offer("two", 9).await);
    while hellos.len() < 9 {
        if let Command::HighestEpoch(_, reply) = service.next().await {
            hellos.push(reply);
        }
    }
    // Now every stream has trajectories, none of which is read before the reply.
    hellos.into_iter().for_each(|reply| reply.send(0).unwrap());
    let (mut of_one, mut of_two) = (0, 0);
    let mut unanswered = Vec::new();
    while of_two < INSERT_CREDIT {
        let (actor, reply) = service.next_insert().await;
        unanswered.push(reply);
        *if actor == 9 { &mut of_two } else { &mut of_one } += 1;
    }
    assert!(of_one <= 2 * INSERT_CREDIT, "{of_one} beside {of_two}");
}

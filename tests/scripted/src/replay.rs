use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use experience::{ActionProbability, Sample, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Outcome, Player};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};
use weights::WeightsVersion;

use super::{endpoint, listen, listen_at, within};
use proto::replay::v1::insert_request::Message as InsertMessage;
use proto::replay::v1::replay_server::Replay;
use proto::replay::v1::sample_request::Message as SampleMessage;
use proto::replay::{
    Answer, Choice, Found, ListQuery, Located, MAIN_TABLE, Origin, PriorityUpdate, Quarantine, Report, Revisable,
    SampleBatch, SampleQuery, SearchPage, SearchQuery, Suspect, TableStats, UpdatedPriorities, batch_to_wire,
    choice_to_wire, revision_from_wire, service, v1,
};
use transport::security::Security;

/// A replay server that passes client streams to the test.
#[derive(Debug)]
pub struct ReplayScript {
    /// Address on which the server listens.
    pub address: SocketAddr,
    inserts: mpsc::Receiver<Stream<v1::InsertRequest, v1::InsertResponse>>,
    samples: mpsc::Receiver<Stream<v1::SampleRequest, v1::SampleResponse>>,
    revisions: mpsc::Receiver<Revisable>,
    _task: JoinSet<()>,
}

/// Server side of a stream.
#[derive(Debug)]
pub struct Stream<Q, R> {
    requests: Streaming<Q>,
    replies: mpsc::Sender<Result<R, Status>>,
}

impl ReplayScript {
    /// Starts a server with an empty table.
    pub async fn start() -> Self {
        Self::holding(TableStats::default(), Vec::new()).await
    }

    /// Starts a server with these table statistics and trajectories.
    pub async fn holding(table: TableStats, ids: Vec<TrajectoryId>) -> Self {
        Self::serve(listen().await, table, ids)
    }

    /// Starts a server at the address of an earlier server that has stopped.
    pub async fn again_at(address: SocketAddr, table: TableStats) -> Self {
        Self::serve(listen_at(address).await, table, Vec::new())
    }

    fn serve((incoming, address): (TcpListenerStream, SocketAddr), table: TableStats, ids: Vec<TrajectoryId>) -> Self {
        let (insert, inserts) = mpsc::channel(1);
        let (sample, samples) = mpsc::channel(1);
        let (revise, revisions) = mpsc::channel(REVISIONS_KEPT);
        let handover =
            Handover { insert, sample, revise, table, ids, quarantined: Mutex::default(), settings: Mutex::default() };
        let mut task = JoinSet::new();
        task.spawn(async move {
            let served = transport::server(&Security::default()).add_service(service(handover));
            served.serve_with_incoming(incoming).await.expect("the script serves");
        });
        Self { address, inserts, samples, revisions, _task: task }
    }

    /// Returns the endpoint for clients.
    pub fn endpoint(&self) -> String {
        endpoint(self.address)
    }

    /// Waits for the next insert stream that a client opens.
    pub async fn inserting(&mut self) -> Stream<v1::InsertRequest, v1::InsertResponse> {
        within(self.inserts.recv()).await.expect("the script serves")
    }

    /// Waits for the next insert stream, reads the `hello` and replies with `ready`.
    pub async fn ready(&mut self, credit: u32) -> Stream<v1::InsertRequest, v1::InsertResponse> {
        let mut stream = self.inserting().await;
        stream.hello().await;
        stream.reply(v1::Ready { credit, heartbeat_ms: 0, highest_epoch: 0, ..v1::Ready::default() }.into()).await;
        stream
    }

    /// Waits for the next revision from a client. The server responds at once, and keeps only the first revisions.
    pub async fn revised(&mut self) -> Revisable {
        within(self.revisions.recv()).await.expect("the script serves")
    }

    /// Waits for the next sample stream that a client opens.
    pub async fn sampling(&mut self) -> Stream<v1::SampleRequest, v1::SampleResponse> {
        within(self.samples.recv()).await.expect("the script serves")
    }
}

impl<Q, R> Stream<Q, R> {
    /// Waits for the client's next message; `None` once the client has ended the stream or the link is cut.
    pub async fn request(&mut self) -> Option<Q> {
        within(self.requests.message()).await.unwrap_or(None)
    }

    /// Sends `reply`; does nothing if the client has disconnected.
    pub async fn reply(&self, reply: R) {
        let _ = within(self.replies.send(Ok(reply))).await;
    }

    /// Ends the stream with a status.
    pub async fn end(self, status: Status) {
        let _ = within(self.replies.send(Err(status))).await;
    }
}

impl Stream<v1::InsertRequest, v1::InsertResponse> {
    /// Waits for the client's next message, which must be `hello`.
    pub async fn hello(&mut self) -> Origin {
        match self.request().await.and_then(|request| request.message) {
            Some(InsertMessage::Hello(hello)) => hello.try_into().expect("the writer's hello is valid"),
            other => panic!("expected hello, got {other:?}"),
        }
    }

    /// Waits for the client's next trajectory, skipping heartbeats and goodbyes.
    pub async fn trajectory(&mut self) -> Trajectory {
        let mut message = self.request().await.and_then(|request| request.message);
        while matches!(message, Some(InsertMessage::Heartbeat(_) | InsertMessage::Goodbye(_))) {
            message = self.request().await.and_then(|request| request.message);
        }
        match message {
            Some(InsertMessage::Trajectory(trajectory)) => {
                trajectory.try_into().expect("the writer's trajectory is valid")
            }
            other => panic!("expected a trajectory, got {other:?}"),
        }
    }

    /// Waits for the next `count` trajectories, and returns the sequence numbers.
    pub async fn sequences(&mut self, count: usize) -> Vec<u64> {
        let mut sequences = Vec::new();
        for _ in 0..count {
            sequences.push(self.trajectory().await.id().sequence);
        }
        sequences
    }

    /// Responds to a trajectory.
    pub async fn answer(&self, answer: Answer) {
        self.reply(answer.into()).await;
    }
}

impl Stream<v1::SampleRequest, v1::SampleResponse> {
    /// Waits for the client's next message, which must be `open`.
    pub async fn open(&mut self) -> SampleQuery {
        match self.request().await.and_then(|request| request.message) {
            Some(SampleMessage::Open(open)) => open.try_into().expect("the sampler's open is valid"),
            other => panic!("expected open, got {other:?}"),
        }
    }

    /// Waits for the client's next message, which must be credit, and returns the number of batches.
    pub async fn credit(&mut self) -> u32 {
        self.whole_credit().await.batches
    }

    /// Waits for the client's next message, which must be credit, and returns all fields.
    pub async fn whole_credit(&mut self) -> v1::Credit {
        match self.request().await.and_then(|request| request.message) {
            Some(SampleMessage::Credit(credit)) => credit,
            other => panic!("expected credit, got {other:?}"),
        }
    }

    /// Reads credit until the sum is `batches`; panics if the sum exceeds it.
    pub async fn credit_of(&mut self, batches: u32) {
        let mut given = 0;
        while given < batches {
            given += self.credit().await;
        }
        assert_eq!(given, batches);
    }

    /// Sends a batch in as many parts as needed.
    pub async fn batch(&self, batch: &SampleBatch) {
        for part in batch_to_wire(batch) {
            self.reply(part).await;
        }
    }
}

struct Handover {
    insert: mpsc::Sender<Stream<v1::InsertRequest, v1::InsertResponse>>,
    sample: mpsc::Sender<Stream<v1::SampleRequest, v1::SampleResponse>>,
    revise: mpsc::Sender<Revisable>,
    table: TableStats,
    ids: Vec<TrajectoryId>,
    /// Trajectories and actors in quarantine, with the reasons.
    quarantined: Mutex<BTreeMap<Suspect, String>>,
    /// Settings of the table that clients have changed; any key is accepted.
    settings: Mutex<BTreeMap<String, String>>,
}

/// Number of trajectories on a page of a search.
const PAGE_IDS: usize = 2;

/// Number of revisions that are kept for the test.
const REVISIONS_KEPT: usize = 16;

/// Capacity of the channel of replies.
const REPLIES: usize = 64;

async fn hand_over<Q, R>(
    to: &mpsc::Sender<Stream<Q, R>>,
    requests: Streaming<Q>,
) -> Result<Response<ReceiverStream<Result<R, Status>>>, Status> {
    let (replies, receiver) = mpsc::channel(REPLIES);
    let over = |_| Status::unavailable("the test is over");
    to.send(Stream { requests, replies }).await.map_err(over)?;
    Ok(Response::new(ReceiverStream::new(receiver)))
}

#[tonic::async_trait]
impl Replay for Handover {
    type InsertStream = ReceiverStream<Result<v1::InsertResponse, Status>>;
    type SampleStream = ReceiverStream<Result<v1::SampleResponse, Status>>;
    type ListStream = tokio_stream::Iter<std::vec::IntoIter<Result<v1::TrajectoryId, Status>>>;

    async fn insert(
        &self,
        request: Request<Streaming<v1::InsertRequest>>,
    ) -> Result<Response<Self::InsertStream>, Status> {
        hand_over(&self.insert, request.into_inner()).await
    }

    async fn sample(
        &self,
        request: Request<Streaming<v1::SampleRequest>>,
    ) -> Result<Response<Self::SampleStream>, Status> {
        hand_over(&self.sample, request.into_inner()).await
    }

    async fn stats(&self, _: Request<v1::StatsRequest>) -> Result<Response<v1::StatsResponse>, Status> {
        Ok(Response::new(v1::StatsResponse { table: Some(self.table.clone()), ..v1::StatsResponse::default() }))
    }

    async fn actors(&self, _: Request<v1::ActorsRequest>) -> Result<Response<v1::ActorsResponse>, Status> {
        Ok(Response::new(v1::ActorsResponse::default()))
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<Self::ListStream>, Status> {
        let query = ListQuery::try_from(request.into_inner()).map_err(|e| proto::convert::status(&e))?;
        let ListQuery { after, limit, .. } = query;
        let above = self.ids.iter().filter(|&&id| after.is_none_or(|after| id > after));
        let ids = above.take(limit.map_or(usize::MAX, |limit| limit.get() as usize));
        let ids = ids.map(|&id| Ok(id.into())).collect::<Vec<_>>();
        Ok(Response::new(tokio_stream::iter(ids)))
    }

    /// Returns two of the ids in each page, with the number of earlier ids as the cursor.
    async fn search(&self, request: Request<v1::SearchRequest>) -> Result<Response<v1::SearchResponse>, Status> {
        let query = SearchQuery::try_from(request.into_inner()).map_err(|e| proto::convert::status(&e))?;
        let from = query.cursor.map_or(0, |cursor| cursor.parse().expect("a cursor of this script"));
        let found = |&id: &TrajectoryId| {
            let trajectory = trajectory(id.sequence);
            Found {
                id,
                plies: trajectory.plies(),
                outcome: trajectory.outcome(),
                weights_version: trajectory.last_weights_version(),
                surprise: None,
                quarantined: self.is_quarantined(id),
                inserted_unix_ms: 0,
                revision: REVISION,
            }
        };
        let found = self.ids.iter().skip(from).take(PAGE_IDS).map(found).collect();
        let next = (self.ids.len() > from + PAGE_IDS).then(|| (from + PAGE_IDS).to_string());
        Ok(Response::new(SearchPage { found, next }.into()))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportResponse>, Status> {
        let Report { trajectory, .. } = request.into_inner().try_into().map_err(|e| proto::convert::status(&e))?;
        Ok(Response::new(v1::ReportResponse { held: self.ids.contains(&trajectory) }))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        let id = request.into_inner().trajectory.map(TrajectoryId::from);
        let id = id.filter(|id| self.ids.contains(id)).ok_or_else(|| Status::not_found("it is not held"))?;
        let located = Located {
            trajectory: trajectory(id.sequence),
            tables: vec![MAIN_TABLE.to_owned()],
            inserted_unix_ms: 0,
            quarantined: self.is_quarantined(id),
            revision: REVISION,
            revised_unix_ms: 0,
        };
        Ok(Response::new(located.into()))
    }

    async fn choose(&self, request: Request<v1::ChooseRequest>) -> Result<Response<v1::ChooseResponse>, Status> {
        let Choice { older_than, .. } = request.into_inner().try_into().map_err(|e| proto::convert::status(&e))?;
        let chosen = self.ids.first().map(|id| trajectory(id.sequence));
        let chosen = chosen.filter(|trajectory| trajectory.last_weights_version() < older_than);
        Ok(Response::new(choice_to_wire(chosen.map(|trajectory| Revisable { trajectory, revision: REVISION }))))
    }

    async fn revise(&self, request: Request<v1::ReviseRequest>) -> Result<Response<v1::ReviseResponse>, Status> {
        let limits = proto::limits::ANY_TRAJECTORY;
        let revised = revision_from_wire(request.into_inner(), limits).map_err(|e| proto::convert::status(&e))?;
        // A test may read no revisions.
        let _ = self.revise.try_send(revised.clone());
        match revised {
            Revisable { trajectory, .. } if !self.ids.contains(&trajectory.id()) => {
                Err(Status::not_found("it is not held"))
            }
            Revisable { revision: REVISION, .. } => Ok(Response::new(v1::ReviseResponse { revision: REVISION + 1 })),
            Revisable { revision, .. } => Err(Status::aborted(format!("{revision} is not {REVISION}"))),
        }
    }

    async fn quarantine(
        &self,
        request: Request<v1::QuarantineRequest>,
    ) -> Result<Response<v1::QuarantineResponse>, Status> {
        let Quarantine { suspect, reason } = request.into_inner().try_into().map_err(|e| proto::convert::status(&e))?;
        let items = self.items_of(suspect)?;
        self.quarantined.lock().expect("no test panics here").insert(suspect, reason);
        Ok(Response::new(v1::QuarantineResponse { items }))
    }

    async fn release(&self, request: Request<v1::ReleaseRequest>) -> Result<Response<v1::ReleaseResponse>, Status> {
        let suspect = request.into_inner().try_into().map_err(|e| proto::convert::status(&e))?;
        let items = self.items_of(suspect)?;
        self.quarantined.lock().expect("no test panics here").remove(&suspect);
        Ok(Response::new(v1::ReleaseResponse { items }))
    }

    async fn update_priorities(
        &self,
        request: Request<v1::UpdatePrioritiesRequest>,
    ) -> Result<Response<v1::UpdatePrioritiesResponse>, Status> {
        let PriorityUpdate { priorities, .. } =
            request.into_inner().try_into().map_err(|e| proto::convert::status(&e))?;
        let updated = UpdatedPriorities { updated: priorities.len() as u64, ..UpdatedPriorities::default() };
        Ok(Response::new(updated))
    }

    async fn configure(
        &self,
        request: Request<v1::ConfigureRequest>,
    ) -> Result<Response<v1::ConfigureResponse>, Status> {
        let mut settings = self.settings.lock().expect("no test panics here");
        settings.extend(request.into_inner().settings);
        Ok(Response::new(v1::ConfigureResponse { settings: settings.clone() }))
    }
}

impl Handover {
    fn is_quarantined(&self, id: TrajectoryId) -> bool {
        let quarantined = self.quarantined.lock().expect("no test panics here");
        [Suspect::Trajectory(id), Suspect::Actor(id.actor)].iter().any(|suspect| quarantined.contains_key(suspect))
    }

    /// Returns the number of items of `suspect`; each trajectory has one item.
    fn items_of(&self, suspect: Suspect) -> Result<u64, Status> {
        match suspect {
            Suspect::Trajectory(id) if self.ids.contains(&id) => Ok(1),
            Suspect::Trajectory(_) => Err(Status::not_found("it is not held")),
            Suspect::Actor(actor) => Ok(self.ids.iter().filter(|id| id.actor == actor).count() as u64),
        }
    }
}

/// Search revision of every trajectory of a script.
const REVISION: u64 = 3;

/// Returns a trajectory with one step of each kind, with actor 7 and epoch 3.
pub fn trajectory(sequence: u64) -> Trajectory {
    let entry = |action, probability| ActionProbability { action: Action(action), probability };
    let policy = vec![entry(0, 0.25), entry(3, 0.75)];
    let kinds = [StepKind::Opening, StepKind::Fast { value: -0.5 }, StepKind::Full { policy, value: 0.5 }];
    let step = |(ply, kind)| Step { action: Action(ply), reward: 0.0, kind, weights_version: WeightsVersion(2) };
    let steps: Vec<Step> = (0..).zip(kinds).map(step).collect();
    let id = TrajectoryId { actor: 7, epoch: 3, sequence };
    Trajectory::of(id, "tic_tac_toe", &steps, Outcome::Win(Player::First)).expect("its steps are valid")
}

/// Returns a batch of segments with at most one unroll step; `number` distinguishes batches.
pub fn batch(number: u64, batch_size: usize) -> SampleBatch {
    let segment = trajectory(number).segment(1, 1).expect("the trajectory has a second ply");
    let samples = vec![Sample { segment, probability: 0.5, table_items: 2 }; batch_size];
    SampleBatch { samples, table: TableStats { samples_total: number, ..TableStats::default() } }
}

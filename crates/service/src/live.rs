//! Games in progress, which a process shows on the admin port to listeners: `/live`, one JSON object per line.
//!
//! [`Live`] is the side of the process: nothing is made or kept without a [`Listening`]. All listeners get the same
//! lines; a slow listener loses lines and delays neither games nor listeners. A connection ends at the time limit of
//! the admin port, after which a listener connects again. [`LiveClient`] is the other side. The rules of a game compute
//! the position from the seed and the actions; lines of an environment outside the process hold observations and
//! pictures.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::{Stream, StreamExt as _};

/// Maximum number of listeners of a process; consoles need one each.
pub const LISTENERS_MAX: usize = 8;

/// Number of lines kept for a slow listener.
const LINES_MAX: usize = 64;

/// Maximum size of a line, or of a response head, that a client accepts.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Maximum length of a picture in base64.
pub const PICTURE_BYTES_MAX: usize = 1 << 16;

/// A finished search in a game in progress: one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Name of the game.
    pub game: String,
    /// Place of the game among the games that the process shows, from 0. The next game at a place has another
    /// `episode`.
    pub place: usize,
    /// Number of the episode at this place.
    pub episode: u64,
    /// Seed of the episode.
    pub seed: u64,
    /// Number of actions before the search.
    pub plies: usize,
    /// The actions before the search; empty if there are too many to send.
    pub actions: Vec<u16>,
    /// Observation `[C, H, W]`, unless the rules can compute it or it is too large.
    pub observation: Option<Vec<f32>>,
    /// The searched state as drawn by an environment outside the process: a PNG in base64. At most one a second.
    pub picture: Option<String>,
    /// Version of the weights that predicted.
    pub weights_version: u64,
    /// Number of simulations of the search.
    pub simulations: u32,
    /// Expected value of the search policy for the player to move.
    pub value: f32,
    /// The most visited actions, most visited first.
    pub top: Vec<SearchedAction>,
    /// The action played after the search.
    pub played: u16,
}

/// An action in the root of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchedAction {
    /// Index of the action.
    pub action: u16,
    /// Probability predicted by the network.
    pub prior: f32,
    /// Number of visits.
    pub visits: u32,
    /// Value of the action for the player to move.
    pub value: f32,
}

/// The games in progress of a process; cheap to clone.
#[derive(Debug, Clone)]
pub struct Live {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    lines: broadcast::Sender<Bytes>,
    listeners: AtomicUsize,
    /// True in a process that plays games.
    is_served: AtomicBool,
}

/// The reason why a listener is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The process plays no games.
    #[error("this process shows no games")]
    NoGames,
    /// There are [`LISTENERS_MAX`] listeners.
    #[error("there are {} listeners already", LISTENERS_MAX)]
    Full,
}

impl Default for Live {
    fn default() -> Self {
        let (listeners, is_served) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { lines: broadcast::Sender::new(LINES_MAX), listeners, is_served }) }
    }
}

impl Live {
    /// Accepts listeners from now on.
    pub fn serve(&self) {
        self.shared.is_served.store(true, Ordering::Relaxed);
    }

    /// Returns true while there is a listener; one relaxed load.
    #[must_use]
    pub fn has_listeners(&self) -> bool {
        self.shared.listeners.load(Ordering::Relaxed) > 0
    }

    /// Sends a snapshot to all listeners; never waits.
    pub fn show(&self, snapshot: &Snapshot) {
        let Ok(mut line) = serde_json::to_vec(snapshot) else { return };
        line.push(b'\n');
        // Without listeners the line is dropped.
        let _ = self.shared.lines.send(line.into());
    }

    /// Listens to the snapshots that are shown from now on.
    ///
    /// # Errors
    /// [`Refusal`] states the reason.
    pub fn listen(&self) -> Result<Listening, Refusal> {
        let shared = Arc::clone(&self.shared);
        if !shared.is_served.load(Ordering::Relaxed) {
            return Err(Refusal::NoGames);
        }
        let more = |listeners| (listeners < LISTENERS_MAX).then_some(listeners + 1);
        shared.listeners.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| Refusal::Full)?;
        Ok(Listening { lines: BroadcastStream::new(shared.lines.subscribe()), shared })
    }
}

/// A listener; the drop ends listening. A stream of lines.
#[derive(Debug)]
pub struct Listening {
    lines: BroadcastStream<Bytes>,
    shared: Arc<Shared>,
}

impl Listening {
    /// Returns the next snapshot. Lost snapshots are left out.
    pub async fn snapshot(&mut self) -> Option<Snapshot> {
        serde_json::from_slice(&self.next().await?.ok()?).ok()
    }
}

impl Stream for Listening {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(Pin::new(&mut self.lines).poll_next(cx)) {
                Some(Ok(line)) => return Poll::Ready(Some(Ok(line))),
                // The listener is slow: it has lost the oldest lines.
                Some(Err(_)) => {}
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.shared.listeners.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Handles `GET /live`.
pub(crate) async fn stream(State(live): State<Live>) -> Response {
    match live.listen() {
        Ok(listening) => {
            ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(listening)).into_response()
        }
        Err(refusal @ Refusal::NoGames) => (StatusCode::NOT_FOUND, format!("{refusal}\n")).into_response(),
        Err(refusal @ Refusal::Full) => (StatusCode::SERVICE_UNAVAILABLE, format!("{refusal}\n")).into_response(),
    }
}

/// A listener at the admin port of another process, which need not be trusted.
#[derive(Debug)]
pub struct LiveClient {
    stream: BufReader<TcpStream>,
    /// The part of the next line that has arrived.
    line: Vec<u8>,
}

impl LiveClient {
    /// Listens at an admin port. Set a time limit: the other side may not answer.
    ///
    /// # Errors
    /// There is no connection, or the process refuses with the returned status.
    pub async fn connect(admin: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(admin).await?;
        // The response to HTTP/1.0 has no chunks: it is the lines, until the connection closes.
        stream.write_all(format!("GET /live HTTP/1.0\r\nHost: {admin}\r\n\r\n").as_bytes()).await?;
        let mut client = Self { stream: BufReader::new(stream), line: Vec::new() };
        let status = client.read_line().await?.unwrap_or_default();
        let status = String::from_utf8_lossy(&status);
        if status.split(' ').nth(1) != Some("200") {
            return Err(io::Error::other(format!("{admin} shows no games: {}", status.trim())));
        }
        while client.read_line().await?.is_some_and(|line| line != b"\r\n") {}
        Ok(client)
    }

    /// Returns the next snapshot; `None` once the connection has ended, after which the caller connects again.
    /// Cancel-safe.
    ///
    /// # Errors
    /// The connection fails, or a line is not a snapshot.
    pub async fn next(&mut self) -> io::Result<Option<Snapshot>> {
        let Some(line) = self.read_line().await? else { return Ok(None) };
        serde_json::from_slice(&line).map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Reads a whole line with the line break; `None` at the end. Cancel-safe: a part stays in `line`.
    async fn read_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len()) as u64;
        (&mut self.stream).take(room).read_until(b'\n', &mut self.line).await?;
        match self.line.last() {
            Some(b'\n') => Ok(Some(std::mem::take(&mut self.line))),
            _ if self.line.len() >= LINE_BYTES_MAX => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "a line without an end"))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Admin, Health, Readiness, net};

    fn snapshot(episode: u64) -> Snapshot {
        Snapshot {
            game: "tic_tac_toe".into(),
            place: 3,
            episode,
            seed: u64::MAX,
            plies: 2,
            actions: vec![4, 0],
            observation: None,
            picture: None,
            weights_version: 7,
            simulations: 32,
            value: 0.25,
            top: vec![SearchedAction { action: 8, prior: 0.5, visits: 30, value: 0.25 }],
            played: 8,
        }
    }

    async fn admin(live: &Live) -> Admin {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let listener = net::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        Admin::start(listener, recorder.handle(), Health::default(), Readiness::starting(), live.clone()).unwrap()
    }

    #[tokio::test]
    async fn a_client_gets_the_snapshots_shown_while_it_listens_in_order() {
        let live = Live::default();
        let admin = admin(&live).await;
        let refused = LiveClient::connect(admin.address).await.unwrap_err().to_string();
        assert!(refused.contains("404"), "{refused}");
        live.serve();
        live.show(&snapshot(1));
        let mut client = LiveClient::connect(admin.address).await.unwrap();
        assert!(live.has_listeners());
        for episode in 2..5 {
            live.show(&snapshot(episode));
        }
        for episode in 2..5 {
            assert_eq!(client.next().await.unwrap(), Some(snapshot(episode)));
        }
        admin.stop().await;
    }

    #[tokio::test]
    async fn a_client_that_leaves_is_no_listener_any_more_and_makes_room() {
        let live = Live::default();
        live.serve();
        let admin = admin(&live).await;
        let mut clients = Vec::new();
        for _ in 0..LISTENERS_MAX {
            clients.push(LiveClient::connect(admin.address).await.unwrap());
        }
        let refused = LiveClient::connect(admin.address).await.unwrap_err().to_string();
        assert!(refused.contains("503"), "{refused}");
        clients.clear();
        let left = async {
            while live.has_listeners() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), left).await.expect("the listeners leave");
        assert!(LiveClient::connect(admin.address).await.is_ok());
        admin.stop().await;
    }

    #[tokio::test]
    async fn a_slow_listener_loses_the_oldest_lines_and_delays_no_other() {
        let live = Live::default();
        live.serve();
        let (mut slow, mut fast) = (live.listen().unwrap(), live.listen().unwrap());
        for episode in 0..1_000 {
            live.show(&snapshot(episode));
            assert_eq!(fast.snapshot().await, Some(snapshot(episode)));
        }
        assert_eq!(slow.snapshot().await, Some(snapshot(1_000 - LINES_MAX as u64)));
    }

    #[tokio::test]
    async fn bytes_that_are_no_snapshots_are_errors_and_take_bounded_memory() {
        let ok = "HTTP/1.0 200 OK\r\n\r\n";
        let endless = "x".repeat(LINE_BYTES_MAX + 1);
        let cases = [("", false), ("SSH-2.0-x\r\n", false), (ok, true), ("HTTP/1.1 503 x\r\n\r\n", false)];
        let bodies = [("{}\n", true), ("\n", true), ("[1,2\n", true), (endless.as_str(), true), ("{\"game\"", false)];
        for (sent, connects) in cases {
            assert_eq!(LiveClient::connect(server_of(sent.into()).await).await.is_ok(), connects, "{sent}");
        }
        for (body, is_error) in bodies {
            let mut client = LiveClient::connect(server_of(format!("{ok}{body}")).await).await.unwrap();
            let next = client.next().await;
            assert_eq!(next.is_err(), is_error, "{next:?} of {}", &body[..body.len().min(9)]);
        }
    }

    /// Returns the address of a server that sends these bytes to one client.
    async fn server_of(bytes: String) -> SocketAddr {
        let listener = net::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_buf(&mut Vec::with_capacity(256)).await.unwrap();
            // The client may have closed the connection.
            let _ = stream.write_all(bytes.as_bytes()).await;
        });
        address
    }
}

//! Tests of the limits of the console over HTTP: many, slow and silent clients, and tokens in logs.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs::File;

use fleet::RunDirectory;
use fleet::run_directory::Progress;
use run_file::RunFile;
use service::{Drain, SecuritySection};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use web_console::{Console, Settings};

use http::{DEADLINE, OURS, POLL, status};
use settings::settings;

mod http;
mod settings;

/// Numbers of event streams and of downloads that a console serves at once.
const STREAMS_MAX: usize = 64;
const DOWNLOADS_MAX: usize = 8;
/// More connections than a console keeps open.
const SILENT: usize = 300;
/// Size of a file that fits into no buffer of the system.
const FILE_BYTES: u64 = 64 << 20;
/// A token with the scopes `view` and `admin`, the digest as `sha256sum` prints it, and an unknown token.
const TOKEN: &str = "correct-horse-battery-staple-8153";
const DIGEST: &str = "0d09082d6dee777937ead54ec3f340cd5bf9126a388572fbd12a0be843185ea0";
const UNKNOWN: &str = "hunter2-of-another-fleet";

/// The console of a run that has not trained yet.
struct Visited {
    console: Console,
    run: RunDirectory,
    _folder: TempDir,
}

impl Visited {
    async fn new(security: SecuritySection) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::new(folder.path(), "first").unwrap();
        run.create().unwrap();
        let mut config = RunFile::default();
        config.run.game = "hex-5".to_owned();
        std::fs::write(run.config(), service::config::print(&config).unwrap()).unwrap();
        run.keep_progress(&Progress { minutes: 10.0, ..Progress::default() }).unwrap();
        let settings = Settings { security, ..settings(run.clone()) };
        Self { console: Console::start(settings, Drain::new()).await.unwrap(), run, _folder: folder }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.console.address()).await.unwrap()
    }

    /// Requests a page with further headers.
    async fn get(&self, path: &str, headers: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")).await
    }

    /// Sends a form from a page of the console.
    async fn post(&self, path: &str, headers: &str, form: &str) -> String {
        http::post(self.console.address(), path, &format!("{OURS}{headers}"), form).await
    }

    async fn send(&self, request: &str) -> String {
        http::send(self.console.address(), request).await
    }

    /// Requests a page, and returns the connection with the status, after the first bytes of the response.
    async fn open(&self, path: &str) -> (TcpStream, u16) {
        let mut stream = self.connect().await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        timeout(DEADLINE, stream.read_exact(&mut head)).await.expect("a response arrives").unwrap();
        (stream, status(&String::from_utf8_lossy(&head)))
    }
}

#[tokio::test]
async fn of_a_thousand_idle_event_streams_few_are_served_and_pages_still_are() {
    let visited = Visited::new(SecuritySection::default()).await;
    let (mut served, mut refused) = (Vec::new(), 0);
    for _ in 0..1000 {
        let (stream, status) = visited.open("/events").await;
        match status {
            200 => served.push(stream),
            503 => refused += 1,
            other => panic!("{other} after {} streams", served.len()),
        }
    }
    assert_eq!((served.len(), refused), (STREAMS_MAX, 1000 - STREAMS_MAX));
    assert_eq!(status(&visited.get("/", "").await), 200);
}

#[tokio::test]
async fn connections_that_finish_no_request_make_room_for_visitors() {
    let visited = Visited::new(SecuritySection::default()).await;
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        let mut stream = visited.connect().await;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: local").await.unwrap();
        silent.push(stream);
    }
    assert_eq!(status(&visited.get("/", "").await), 200);
    // An error means the same as an end: the console has closed the connection.
    let read = timeout(DEADLINE, silent[0].read(&mut [0; 64])).await.expect("the first connection is closed");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

/// Writes a kept version with a large file, and returns the address.
fn keep(run: &RunDirectory) -> &'static str {
    let (folder, digest) = (run.path().join("weights"), "ab".repeat(32));
    std::fs::create_dir_all(&folder).unwrap();
    let architecture = r#"{"game":"hex-5","planes":2,"height":5,"width":5,"actions":25,"channels":8,"blocks":1}"#;
    let file = format!(r#""digest":"{digest}","size_bytes":{FILE_BYTES}"#);
    let manifest = format!(r#"{{"version":1,"training_step":9,{file},"architecture":{architecture}}}"#);
    std::fs::write(folder.join("v000001.json"), manifest).unwrap();
    // The file takes no space on the disk.
    File::create(folder.join("v000001.safetensors")).unwrap().set_len(FILE_BYTES).unwrap();
    "/weights/v1.safetensors"
}

#[tokio::test]
async fn downloads_are_bounded_and_a_client_that_stops_reading_loses_the_place() {
    let visited = Visited::new(SecuritySection::default()).await;
    let address = keep(&visited.run);
    let mut unread = Vec::new();
    for _ in 0..DOWNLOADS_MAX {
        let (stream, status) = visited.open(address).await;
        assert_eq!(status, 200);
        unread.push(stream);
    }
    let refused = visited.get(address, "").await;
    assert!(status(&refused) == 503 && refused.contains("retry-after: 10"), "{refused}");
    assert_eq!(status(&visited.get("/", "").await), 200, "slow readers delay no page");
    let begin = Instant::now();
    while visited.open(address).await.1 != 200 {
        assert!(begin.elapsed() < DEADLINE, "the places of {} slow readers stay taken", unread.len());
        sleep(POLL).await;
    }
}

#[tokio::test]
async fn no_token_is_in_a_page_an_address_or_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let [log, tokens] = ["log", "tokens"].map(|name| folder.path().join(name));
    let lines = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
    lines.with_writer(File::create(&log).unwrap()).init();
    std::fs::write(&tokens, format!("operator view,admin {DIGEST}\n")).unwrap();
    let visited = Visited::new(SecuritySection { tokens, ..SecuritySection::default() }).await;
    let page = visited.get("/sign-in", "").await;
    let (_, rest) = page.split_once("name=\"word\" value=\"").unwrap();
    let word = rest.split('"').next().unwrap().to_owned();
    let mut responses = vec![page];
    for token in [TOKEN, UNKNOWN] {
        let signed_in = visited.post("/sign-in", "", &format!("word={word}&token={token}")).await;
        // The cookie is the one place for the token.
        let is_other = |line: &&str| !line.starts_with("set-cookie: zerofleet=");
        responses.push(signed_in.lines().filter(is_other).collect::<Vec<_>>().join("\n"));
        let [cookie, bearer] = [format!("Cookie: zerofleet={token}\r\n"), format!("Authorization: Bearer {token}\r\n")];
        for headers in [&cookie, &bearer] {
            for path in ["/", "/config", "/replay/game?id=1/2/3", "/weights/v1.safetensors", "/nothing"] {
                responses.push(visited.get(path, headers).await);
            }
            responses.push(visited.post("/replay/quarantine", headers, &format!("word={word}&reason=x")).await);
        }
        responses.push(visited.get(&format!("/?token={token}"), "").await);
    }
    assert_eq!(status(&responses[1]), 303, "{}", responses[1]);
    tracing::info!("the log is complete");
    visited.console.stop().await;
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("the log is complete"), "{text}");
    for place in responses.iter().chain([&text]) {
        let shown = [TOKEN, UNKNOWN].into_iter().find(|token| place.contains(token));
        assert_eq!(shown, None, "{place}");
    }
}

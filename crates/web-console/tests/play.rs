//! Tests of play over HTTP, with a scripted thinker, as a browser without scripts follows links.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fleet::RunDirectory;
use fleet::run_directory::Progress;
use game::Game as _;
use run_file::RunFile;
use selfplay::{Analysis, Proven};
use service::Drain;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::Instant;
use web_console::{Console, Opinion, Question, Settings, Thinker};

use crate::http::{self, DEADLINE, status, until_contains};
use weights::WeightsVersion;

/// Number of event streams that a console serves at once.
const STREAMS_MAX: usize = 64;
/// Interval between two reports of a search.
const INTERVAL: Duration = Duration::from_millis(50);
/// Most redirections and waiting pages until a position.
const HOPS_MAX: usize = 8;

/// Plays the first legal action, and passes in Go. Searches go on while `is_held` is set.
#[derive(Debug, Default)]
struct Scripted {
    is_held: AtomicBool,
    is_remote: AtomicBool,
}

impl Thinker for Scripted {
    fn think(
        &self,
        question: &Question,
        progress: &mut dyn FnMut(&Analysis) -> ControlFlow<()>,
    ) -> anyhow::Result<Opinion> {
        anyhow::ensure!(question.version != Some(WeightsVersion(404)), "the run has no weights v404");
        let rules = question.game.rules();
        let position = rules.replay_from(question.seed, &question.actions)?;
        let mut actions = Vec::new();
        rules.legal_actions(&position, &mut actions);
        let is_go = question.game.to_string().starts_with("go-");
        let best = if is_go { actions[actions.len() - 1] } else { actions[0] };
        let policy: Vec<f32> = actions.iter().map(|action| f32::from(*action == best)).collect();
        let analysis = Analysis {
            visit_counts: vec![question.simulations; actions.len()],
            priors: policy.clone(),
            action_values: vec![0.5; actions.len()],
            actions,
            policy,
            value: 0.5,
            network_value: 0.25,
            principal_variation: vec![best],
            best,
            proven: Proven::Unknown,
        };
        while progress(&analysis).is_continue() && self.is_held.load(Ordering::Relaxed) {
            // No test waits for this time: it is the pace of reports, which would otherwise fill the stream.
            std::thread::sleep(INTERVAL);
        }
        Ok(Opinion { analysis, version: question.version.unwrap_or(WeightsVersion(9)) })
    }

    fn is_remote(&self) -> bool {
        self.is_remote.load(Ordering::Relaxed)
    }
}

/// A console with a scripted thinker.
struct Visited {
    console: Console,
    thinker: Arc<Scripted>,
    run: RunDirectory,
    _folder: TempDir,
}

impl Visited {
    async fn new() -> Self {
        Self::with("view,infer").await
    }

    async fn with(scopes: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::new(folder.path(), "first").unwrap();
        run.create().unwrap();
        let mut config = RunFile::default();
        config.run.game = "tic_tac_toe".to_owned();
        std::fs::write(run.config(), service::config::print(&config).unwrap()).unwrap();
        run.keep_progress(&Progress::default()).unwrap();
        let thinker = Arc::<Scripted>::default();
        let scopes = scopes.parse().unwrap();
        let settings = Settings { scopes, thinker: thinker.clone(), ..crate::settings(run.clone()) };
        Self { console: Console::start(settings, Drain::new()).await.unwrap(), thinker, run, _folder: folder }
    }

    async fn get(&self, path: &str) -> String {
        http::get(self.console.address(), path).await
    }

    /// Loads an address as a browser without scripts does, until there is nothing to wait for.
    async fn open(&self, address: &str) -> String {
        let mut response = self.get(address).await;
        for _ in 0..HOPS_MAX {
            let Some(next) = location(&response).or_else(|| refresh(&response)) else {
                assert_eq!(status(&response), 200, "{address}: {response}");
                return response;
            };
            response = self.get(&next).await;
        }
        panic!("{address} leads nowhere: {response}");
    }

    /// Follows the link with this text or name.
    async fn click(&self, page: &str, name: &str) -> String {
        self.open(&href(page, name)).await
    }

    /// Submits the form of moves with another field.
    async fn submit(&self, page: &str, field: &str) -> String {
        let form = page.split_once("id=\"moves\"").unwrap().1.split("</form>").next().unwrap();
        let hidden = form.split("type=\"hidden\" name=\"").skip(1).map(|input| {
            let (name, value) = input.split_once("\" value=\"").unwrap();
            format!("{name}={}&", value.split('"').next().unwrap())
        });
        self.open(&format!("/play?{}{field}", hidden.collect::<String>())).await
    }

    /// Sends a game record in a form.
    async fn upload(&self, record: &[u8]) -> String {
        let part = b"--b\r\nContent-Disposition: form-data; name=\"record\"; filename=\"a.sgf\"\r\n\r\n";
        let body = [&part[..], record, b"\r\n--b--\r\n"].concat();
        let length = body.len();
        let head = format!(
            "POST /play/record HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\
             Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {length}\r\n\r\n"
        );
        http::send(self.console.address(), [head.as_bytes(), &body].concat()).await
    }

    /// Opens the events of a search, and reads until the text contains `part`.
    async fn events(&self, query: &str, part: &str) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(self.console.address()).await.unwrap();
        let request = format!("GET /play/events?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let text = until_contains(&mut stream, part).await;
        (stream, text)
    }
}

/// Returns the address of a redirection.
fn location(response: &str) -> Option<String> {
    let (_, rest) = response.split_once("\r\nlocation: ").filter(|_| status(response) == 303)?;
    rest.split("\r\n").next().map(str::to_owned)
}

/// Returns the address that a browser without scripts loads next.
fn refresh(page: &str) -> Option<String> {
    let (_, rest) = page.split_once("<noscript><meta http-equiv=\"refresh\" content=\"0;url=")?;
    rest.split('"').next().map(|address| address.replace("&amp;", "&"))
}

/// Returns the address of the link with this text or name.
fn href(page: &str, name: &str) -> String {
    let mut links = page.split("<a href=\"").skip(1).filter_map(|link| link.split("</a>").next()?.split_once('"'));
    let is_it = |rest: &str| {
        rest.contains(&format!("aria-label=\"{name}\"")) || rest.strip_prefix('>').is_some_and(|text| text == name)
    };
    let (address, _) = links.find(|(_, rest)| is_it(rest)).unwrap_or_else(|| panic!("no link {name} in {page}"));
    address.replace("&amp;", "&")
}

#[tokio::test]
async fn games_are_played_to_the_end_by_following_links_without_scripts() {
    let visited = Visited::new().await;
    let mut page = visited.open("/play").await;
    assert!(page.contains("You are to move, as first player.") && !page.contains("style="), "{page}");
    for cell in ["5", "3", "7"] {
        page = visited.click(&page, &format!("play {cell}")).await;
    }
    assert!(page.contains("You win.") && page.contains("5 1 3 2 7") && !page.contains("aria-label=\"play"), "{page}");
    let mut page = visited.open("/play?game=connect_four").await;
    for column in ["4", "5", "6", "7"] {
        page = visited.click(&page, &format!("play {column}")).await;
    }
    assert!(page.contains("You win.") && page.contains("last move: column 7"), "{page}");
}

#[tokio::test]
async fn the_program_moves_first_for_the_second_side_and_sides_can_be_changed() {
    let visited = Visited::new().await;
    let mut page = visited.open("/play?side=second").await;
    assert!(page.contains("You are to move, as second player.") && page.contains("<p>1 </p>"), "{page}");
    for cell in ["9", "8"] {
        page = visited.click(&page, &format!("play {cell}")).await;
    }
    assert!(page.contains("The program wins."), "{page}");
    page = visited.click(&page, "Take back").await;
    assert!(page.contains("<p>1 9 2 </p>") && page.contains("You are to move"), "{page}");
    page = visited.click(&page, "Change sides").await;
    assert!(page.contains("<p>1 9 2 3 </p>") && page.contains("as first player"), "{page}");
    page = visited.click(&page, "Step through").await;
    assert!(page.contains("Game of tic_tac_toe") && page.contains("4 of 4"), "{page}");
}

#[tokio::test]
async fn chess_has_two_clicks_and_promotions_and_takes_typed_moves() {
    let visited = Visited::new().await;
    let page = visited.open("/play?game=chess&moves=a2a4_h7h5_a4a5_h5h4_a5a6_h4h3_a6b7_h3g2").await;
    let page = visited.click(&page, "move from b7").await;
    assert_eq!(href(&page, "choose a move to a8 below"), "#moves");
    let page = visited.submit(&page, "move=&choice=b7a8n").await;
    assert!(page.contains("h3g2 b7a8n ") && page.contains("3 knights"), "{page}");
    let page = visited.open("/play?game=chess").await;
    let page = visited.submit(&page, "move=Nf3").await;
    assert!(page.contains("<p>g1f3 ") && page.contains("You are to move, as White."), "{page}");
    let refused = visited.get("/play?game=chess&move=e2e5").await;
    assert!(status(&refused) == 400 && refused.contains("e2e5") && refused.contains("move from e2"), "{refused}");
}

#[tokio::test]
async fn passes_end_a_game_of_go_and_the_score_is_shown() {
    let visited = Visited::new().await;
    let page = visited.open("/play?game=go-9").await;
    let page = visited.click(&page, "play D4").await;
    assert!(page.contains("<p>D4 pass </p>"), "{page}");
    let page = visited.submit(&page, "move=&choice=pass").await;
    assert!(page.contains("You win.") && page.contains("Area: Black 81, White 0 and komi 7."), "{page}");
}

#[tokio::test]
async fn a_hint_shows_the_search_next_to_a_board_that_can_be_played_on() {
    let visited = Visited::new().await;
    let page = visited.open("/play?moves=5_1&simulations=50").await;
    assert!(!page.contains("Best moves"), "{page}");
    let page = visited.click(&page, "Hint").await;
    for part in ["Best moves of the search", "expects 2. Weights v9.", "100 % of the search", "aria-label=\"play 2\""] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let page = visited.click(&page, "2").await;
    assert!(page.contains("<p>5 1 2 3 </p>"), "{page}");
    let failed = visited.get("/play/answer?hint=1&version=404").await;
    assert!(status(&failed) == 503 && failed.contains("The search failed: the run has no weights v404."), "{failed}");
}

#[tokio::test]
async fn a_stream_sends_the_variation_and_the_address_of_the_next_position() {
    let visited = Visited::new().await;
    let page = visited.get("/play?moves=5").await;
    assert!(page.contains("data-events=\"/play/events?game=tic_tac_toe&amp;"), "{page}");
    let (_stream, text) = visited.events("moves=5", "moves=5_1\n").await;
    let (report, end) = text.split_once("event: moved").unwrap();
    assert!(report.contains("text/event-stream") && report.contains("Value +0.50 for second player"), "{text}");
    assert!(report.contains("expects 1."), "{text}");
    assert!(end.contains("data: /play?game=tic_tac_toe&side=first&simulations=200&moves=5_1\n"), "{text}");
    let (_stream, text) = visited.events("moves=5_1&hint=1", "event: shown").await;
    assert!(text.contains("id=\"progress\"") && text.contains("100 % of the search"), "{text}");
    assert_eq!(status(&visited.get("/play/events?moves=5_1").await), 400, "the visitor is to move");
}

#[tokio::test]
async fn more_visitors_than_places_wait_in_a_queue_and_see_it() {
    let visited = Visited::new().await;
    visited.thinker.is_held.store(true, Ordering::Relaxed);
    let (mut first, _) = visited.events("moves=5", "expects 1").await;
    let (second, _) = visited.events("moves=5", "Waiting: 1 searches come first.").await;
    let mut streams = Vec::new();
    let full = loop {
        assert!(streams.len() < STREAMS_MAX - 2, "the queue is bounded");
        let (stream, text) = visited.events("moves=5", "</p>").await;
        streams.push(stream);
        if text.contains("Every place in the queue of searches is taken") {
            break text;
        }
    };
    assert!(full.contains("retry: 5000"), "{full}");
    let page = visited.get("/play/answer?moves=5").await;
    assert!(page.contains("Every place in the queue") && page.contains("content=\"5;url=/play/answer?"), "{page}");
    // Visitors who leave give up their places.
    drop((second, streams));
    visited.thinker.is_held.store(false, Ordering::Relaxed);
    until_contains(&mut first, "event: moved").await;
    let (begin, mut page) = (Instant::now(), String::new());
    while !page.contains("moves=5_1") {
        assert!(begin.elapsed() < DEADLINE, "{page}");
        page = visited.get("/play/answer?moves=5").await;
    }
    assert_eq!(status(&page), 303, "{page}");
}

#[tokio::test]
async fn a_browser_without_scripts_that_asks_again_keeps_the_place_in_the_queue() {
    let visited = Visited::new().await;
    visited.thinker.is_held.store(true, Ordering::Relaxed);
    let (_first, _) = visited.events("moves=5", "expects 1").await;
    let (answer, waits) = ("/play/answer?moves=5_1_2", "Waiting: 1 searches come first.");
    let page = visited.get(answer).await;
    assert!(page.contains(waits) && refresh(&page).is_some_and(|next| next.contains("moves=5_1_2")), "{page}");
    let (_later, _) = visited.events("moves=5", "Waiting: 2 searches come first.").await;
    let page = visited.get(answer).await;
    assert!(page.contains(waits), "{page}");
    visited.thinker.is_held.store(false, Ordering::Relaxed);
}

#[tokio::test]
async fn addresses_against_the_rules_or_the_limits_are_refused() {
    let visited = Visited::new().await;
    let long = format!("moves={}", "5_".repeat(10_000));
    for (query, reason) in [
        ("moves=5_5", "Move 2: 5 is not legal in this position."),
        ("moves=x", "is not a move"),
        ("game=%3Cb%3E", "`&lt;b&gt;` is not a game"),
        ("game=gym:Any-v0", "runs outside this program"),
        ("simulations=99999999", "Simulations:"),
        ("moves=5&ply=3", "there is no ply 3."),
        (long.as_str(), "too long for an address."),
    ] {
        for path in ["/play", "/play/answer", "/play/events"] {
            let page = visited.get(&format!("{path}?{query}")).await;
            assert!(status(&page) == 400 && page.contains(reason), "{path} {query}: {page}");
        }
    }
}

#[tokio::test]
async fn a_record_in_another_charset_is_stepped_through_with_the_opinion_of_the_network() {
    let visited = Visited::new().await;
    let record = b"(;GM[1]SZ[9]CA[ISO-8859-1]PB[M\xfcller];B[dd];W[ee];B[])";
    let opened = location(&visited.upload(record).await).unwrap();
    assert_eq!(opened, "/play?game=go-9&side=first&simulations=0&ply=0&moves=D6_E5_pass");
    let page = visited.open(&opened).await;
    assert!(page.contains("To move: Black.") && page.contains("Best moves of the search"), "{page}");
    let page = visited.click(&page, "Forward").await;
    assert!(page.contains("To move: White.") && page.contains("1 of 3") && page.contains("last move: D6"), "{page}");
    let page = visited.click(&page, "Last").await;
    let page = visited.click(&page, "Back").await;
    assert!(page.contains("2 of 3") && page.contains("last move: E5"), "{page}");
    let page = visited.click(&page, "Play from here").await;
    assert!(page.contains("You are to move, as Black.") && page.contains("<p>D6 E5 </p>"), "{page}");
    let noted = visited.upload(b"(;GM[1]SZ[9]KM[6.5];B[dd])").await;
    assert!(status(&noted) == 200 && noted.contains("The record has komi 6.5;"), "{noted}");
    assert!(visited.click(&noted, "Step through the game").await.contains("0 of 1"));
}

#[tokio::test]
async fn records_up_to_a_limit_are_read_and_other_files_are_refused() {
    let visited = Visited::new().await;
    let commented = |bytes: usize| format!("(;GM[1]SZ[9];B[dd]C[{}])", "x".repeat(bytes));
    assert_eq!(status(&visited.upload(commented(200_000).as_bytes()).await), 303);
    let large = visited.upload(commented(300_000).as_bytes()).await;
    assert!(large.is_empty() || status(&large) == 413, "{large}");
    for (record, reason) in [
        (&b"a diary"[..], "The file is not a game record"),
        (b"", "The form has no file."),
        (b"(;GM[1]SZ[9]AB[dd][ee];W[cc])", "places stones before the first move"),
    ] {
        let page = visited.upload(record).await;
        assert!(status(&page) == 400 && page.contains(reason), "{page}");
    }
}

#[tokio::test]
async fn a_visitor_without_the_scope_infer_sees_positions_and_no_search() {
    let visited = Visited::with("view").await;
    assert!(visited.get("/play?moves=5_1").await.contains("You are to move"));
    for looked_at in ["moves=5_1&ply=1", "moves=5&side=first", "side=second", "hint=1"] {
        let page = visited.get(&format!("/play?{looked_at}")).await;
        assert!(page.contains("needs a token with the scope infer"), "{looked_at}: {page}");
        assert!(!page.contains("data-events") && !page.contains("http-equiv"), "{looked_at}: {page}");
    }
    for path in ["/play/answer?moves=5", "/play/events?moves=5"] {
        let refused = visited.get(path).await;
        assert!(status(&refused) == 403 && refused.contains("does not grant the scope infer"), "{refused}");
    }
    assert_eq!(status(&visited.upload(b"(;GM[1]SZ[9];B[dd])").await), 403);
}

#[tokio::test]
async fn kept_versions_can_be_chosen_unless_an_inference_server_chooses() {
    let visited = Visited::new().await;
    let folder = visited.run.path().join("weights");
    std::fs::create_dir_all(&folder).unwrap();
    let architecture = r#"{"game":"tic_tac_toe","planes":2,"height":3,"width":3,"actions":9,"channels":8,"blocks":1}"#;
    for version in [1, 2] {
        let (digest, step) = ("ab".repeat(32), 10 * version);
        let text = format!(
            r#"{{"version":{version},"training_step":{step},"digest":"{digest}","size_bytes":5,"architecture":{architecture}}}"#
        );
        std::fs::write(folder.join(format!("v{version:06}.json")), text).unwrap();
    }
    let page = visited.get("/weights").await;
    let page = visited.click(&page, "play against v2").await;
    for part in ["<option value=\"2\" selected>v2</option>", "<option value=\"1\">v1</option>"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let page = visited.click(&page, "Hint").await;
    assert!(page.contains("Weights v2.") && page.contains("<option value=\"tic_tac_toe\">"), "{page}");
    let new = visited.get("/play?version=2&moves=5&ply=1&new=1").await;
    assert_eq!(location(&new).unwrap(), "/play?game=tic_tac_toe&side=first&simulations=200&version=2");
    visited.thinker.is_remote.store(true, Ordering::Relaxed);
    let page = visited.open("/play?version=2&hint=1").await;
    let sentence = "Weights: the latest of the inference server, which serves no other version.";
    assert!(page.contains(sentence) && page.contains("Weights v9.") && !page.contains("name=\"version\""), "{page}");
    let page = visited.get("/weights").await;
    assert!(page.contains("/weights/v2.safetensors") && !page.contains("play against"), "{page}");
}

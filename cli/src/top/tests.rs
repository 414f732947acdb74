//! Tests of `zerofleet top` that poll admin ports with scripted responses.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::*;
use fleet::Role;

/// The responses of a scripted admin port: metrics and readiness. `None` closes every connection at once.
type Script = Arc<Mutex<Option<(String, Result<(), String>)>>>;

/// An admin port with scripted responses, served by a thread until the test process exits.
struct Scripted {
    address: SocketAddr,
    script: Script,
}

impl Scripted {
    fn new(metrics: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let script: Script = Arc::new(Mutex::new(Some((metrics.to_owned(), Ok(())))));
        let responses = Arc::clone(&script);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let Some((metrics, ready)) = responses.lock().unwrap().clone() else { continue };
                let mut request = [0; 4096];
                let read = stream.read(&mut request).unwrap_or(0);
                let is_metrics = request[..read].starts_with(b"GET /metrics ");
                let (status, body) = match (is_metrics, ready) {
                    (true, _) => ("200 OK", metrics),
                    (false, Ok(())) => ("200 OK", "ready\n".to_owned()),
                    (false, Err(reason)) => ("503 Service Unavailable", reason),
                };
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                // The client may have disconnected.
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
            }
        });
        Self { address, script }
    }

    fn set(&self, metrics: &str, ready: Result<(), &str>) {
        *self.script.lock().unwrap() = Some((metrics.to_owned(), ready.map_err(str::to_owned)));
    }

    fn disconnect(&self) {
        *self.script.lock().unwrap() = None;
    }
}

/// A roster with a list of scripted admin ports to poll.
struct Top {
    roster: Roster,
    listed: Vec<(SocketAddr, String)>,
    prices: Vec<Price>,
}

impl Top {
    fn at(ports: &[&Scripted]) -> Self {
        let listed = ports.iter().map(|port| (port.address, "fleet".to_owned())).collect();
        Self { roster: Roster::default(), listed, prices: Vec::new() }
    }

    fn poll(&mut self) -> Snapshot {
        let agent = agent(TIMEOUT);
        self.roster.poll(&self.listed, Instant::now(), unix_seconds(), |address| ask(&agent, address));
        Snapshot::of(&self.roster, &self.prices, Instant::now(), unix_seconds())
    }
}

const LEARNER: &str = "zerofleet_learner_weights_version 12\nzerofleet_learner_steps_total 100\n";
const ACTOR: &str = "zerofleet_actor_weights_version 9\nzerofleet_actor_moves_total 1000000\n";

fn states(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.processes.iter().map(|row| row.state).collect()
}

#[test]
fn roles_follow_from_metrics_and_lag_is_measured_against_the_learner() {
    let info = "zerofleet_process_info{role=\"actor\",version=\"1.2.3\",run=\"r\",game=\"g\"} 1\n";
    let (learner, actor) = (Scripted::new(LEARNER), Scripted::new(&format!("{info}{ACTOR}")));
    let snapshot = Top::at(&[&actor, &learner]).poll();
    assert_eq!(snapshot.metrics.weights_version, Some(12.0));
    let [first, second] = &snapshot.processes[..] else { panic!("{snapshot:?}") };
    assert_eq!((first.role, first.lag_versions), (Some(Role::Learner), None));
    assert_eq!((second.role, second.lag_versions), (Some(Role::Actor), Some(3.0)));
    assert_eq!(second.version.as_deref(), Some("1.2.3"));
}

#[test]
fn losses_of_training_stand_beside_those_on_held_out_games() {
    let trained = "zerofleet_learner_loss{part=\"total\"} 2.5\nzerofleet_learner_loss{part=\"policy\"} 1.5\n\
                   zerofleet_learner_loss{part=\"value\"} 0.75\n";
    let validated = "zerofleet_learner_validation_loss{part=\"policy\"} 1.625\n\
                     zerofleet_learner_validation_loss{part=\"value\"} 0.875\n\
                     zerofleet_learner_validation_policy_accuracy 0.5\n\
                     zerofleet_learner_validation_calibration_error 0.025\n";
    let learner = Scripted::new(&format!("{LEARNER}{trained}"));
    let mut top = Top::at(&[&learner]);
    let text = table::table(&top.poll());
    assert!(text.contains("\nloss       2.500: policy 1.500, value 0.750\n") && !text.contains("held out"), "{text}");
    learner.set(&format!("{LEARNER}{trained}{validated}"), Ok(()));
    let snapshot = top.poll();
    let text = table::table(&snapshot);
    let line = "\nheld out   policy 1.625, value 0.875, best move 50.0 %, calibration 2.5 %\n";
    assert!(text.contains(line), "{text}");
    let object = snapshot.json();
    assert_eq!([&object["losses"]["policy"], &object["validation"]["loss_policy"]], [1.5, 1.625]);
}

#[test]
fn a_fault_and_its_reason_are_shown_without_control_characters() {
    let refused = "zerofleet_actor_weights_refused{why=\"no \u{1b}[31m24 channels\"} 1\n\
                   zerofleet_actor_moves_total 0\nzerofleet_actor_lost_episodes_total 2\n";
    let actor = Scripted::new(refused);
    let (mut top, mut watch) = (Top::at(&[&actor]), Watch::default());
    top.poll();
    let mut snapshot = top.poll();
    assert_eq!(watch.read(&snapshot.metrics, Instant::now()), None);
    let fault = watch.at_end(&snapshot.metrics);
    assert!(fault.as_ref().unwrap().starts_with("no actor can play with the weights (no"), "{fault:?}");
    snapshot.metrics.health.fault.clone_from(&fault);
    let text = table::table(&snapshot);
    assert!(text.contains("\nfault      no actor can play with the weights (no"), "{text}");
    assert!(text.contains("\nlost       2 episodes, in 0 environment failures\n"), "{text}");
    assert!(!text.contains('\u{1b}') && text.lines().all(|line| line.len() <= 80), "{text}");
    assert_eq!(snapshot.json()["health"]["fault"], fault.unwrap());
}

#[test]
fn counts_from_before_the_first_poll_are_not_in_the_rate() {
    let actor = Scripted::new(ACTOR);
    let mut top = Top::at(&[&actor]);
    assert_eq!(top.poll().metrics.positions_per_second, None);
    assert_eq!(top.poll().metrics.positions_per_second, Some(0.0));
    actor.set("zerofleet_actor_moves_total 1000100\n", Ok(()));
    assert!(top.poll().metrics.positions_per_second.unwrap() > 0.0);
}

#[test]
fn a_process_that_stops_answering_is_lost_until_it_answers_again() {
    let (learner, actor) = (Scripted::new(LEARNER), Scripted::new(ACTOR));
    let mut top = Top::at(&[&learner, &actor]);
    assert_eq!(states(&top.poll()), ["ready", "ready"]);
    actor.disconnect();
    let lost = top.poll();
    assert_eq!(states(&lost), ["ready", "lost"]);
    assert_eq!(lost.metrics.positions_per_second, None, "a lost process has no rate");
    // A process also counts as lost when the host name no longer resolves.
    top.listed.pop();
    assert_eq!(states(&top.poll()), ["ready", "lost"]);
    actor.set(ACTOR, Err("waiting for the first weights\n"));
    let back = top.poll();
    assert_eq!(states(&back), ["ready", "not ready"]);
    assert_eq!(back.processes[1].reason.as_deref(), Some("waiting for the first weights"));
}

#[test]
fn a_port_that_never_answers_is_shown_as_no_answer() {
    let silent = Scripted::new("");
    silent.disconnect();
    let snapshot = Top::at(&[&silent]).poll();
    assert_eq!(states(&snapshot), ["no reply"]);
    assert!(table::table(&snapshot).contains("no reply"));
}

#[test]
fn the_bottleneck_and_the_limiter_follow_from_counters() {
    let times = |learner: f64, actor: f64| {
        [
            format!(
                "zerofleet_learner_seconds_total{{phase=\"wait\"}} {learner}\nzerofleet_learner_seconds_total{{phase=\"train\"}} 1\n"
            ),
            format!(
                "zerofleet_actor_seconds_total{{phase=\"evaluate\"}} {actor}\nzerofleet_actor_seconds_total{{phase=\"search\"}} 1\n"
            ),
            format!(
                "zerofleet_replay_items 7\nzerofleet_replay_rate_limiter_wait_seconds_total{{table=\"main\",side=\"samples\",reason=\"inserts\"}} {learner}\n"
            ),
        ]
    };
    let ports = times(1.0, 1.0).map(|metrics| Scripted::new(&metrics));
    let mut top = Top::at(&ports.each_ref());
    assert_eq!(top.poll().bottleneck, None, "nothing is measured yet");
    for (port, metrics) in ports.iter().zip(times(1e6, 1e6)) {
        port.set(&metrics, Ok(()));
    }
    let snapshot = top.poll();
    let sentence = snapshot.bottleneck.as_ref().unwrap().sentence.clone();
    assert!(sentence.starts_with("Self-play is the bottleneck: the learner waits 100 %"), "{sentence}");
    let text = table::table(&snapshot);
    assert!(text.contains("the learner waits 100 % of the time (the learner is ahead)"), "{text}");
}

#[test]
fn nothing_that_a_server_sends_breaks_the_table() {
    let escape = "\x1b]0;owned\x07\x1b[2J\u{202e}";
    let labels = format!("role=\"actor\",version=\"{escape}{}\"", "v".repeat(100_000));
    let numbers = "zerofleet_actor_weights_version 1e308\nzerofleet_learner_weights_version -1e308\n\
                   zerofleet_process_start_seconds 1e308\nzerofleet_actor_moves_total inf\nzerofleet_replay_bytes NaN\n";
    let held = format!(
        "zerofleet_replay_rate_limiter_wait_seconds_total{{table=\"main\",side=\"{escape}\",reason=\"{escape}\"}} 1\n"
    );
    let broken = format!("zerofleet_process_info{{{labels}}} 1\n{numbers}{held}x{{ 1\n{{}} 2\n\u{0}\n");
    let hostile = [
        Scripted::new(&broken),
        Scripted::new(&broken.replace("actor\"", "replay\"")),
        Scripted::new(&broken.replace("actor\"", "learner\"")),
        Scripted::new(&broken.replace("actor\"", "arena\"")),
        // This response exceeds the size limit.
        Scripted::new(&"a 1\n".repeat(2 << 20)),
    ];
    for port in &hostile[..4] {
        port.set(&broken, Err(&format!("{escape}{}", "because ".repeat(10_000))));
    }
    let mut top = Top::at(&hostile.each_ref());
    top.prices = vec!["actor=1e12".parse().unwrap()];
    top.poll();
    for port in &hostile[..4] {
        port.set(&broken.replace("} 1\n", "} 1e300\n"), Err(escape));
    }
    let snapshot = top.poll();
    let text = table::table(&snapshot);
    let wrong = text.chars().find(|c| *c != '\n' && *c != ' ' && !c.is_ascii_graphic());
    assert_eq!(wrong, None, "{text:?}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    assert!(snapshot.json().is_object());
}

#[test]
fn a_small_terminal_shows_the_processes_and_cuts_lines_at_the_right() {
    let learner = Scripted::new(LEARNER);
    let snapshot = Top::at(&[&learner]).poll();
    let fitted = |columns, rows| table::fitted(&snapshot, service::terminal::Size { columns, rows });
    assert_eq!(fitted(200, 100), table::table(&snapshot).trim_end());
    for (columns, rows) in [(60, 14), (80, 8), (30, 9), (10, 4), (1, 1)] {
        let text = fitted(columns, rows);
        assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns} columns: {text}");
        assert!(text.lines().count() < rows.max(2), "{rows} rows: {text}");
        let shows_processes = text.lines().any(|line| line.starts_with(&"learner  "[..columns.min(9)]));
        assert!(shows_processes || rows < 3, "{columns} x {rows}: {text}");
    }
    assert!(fitted(60, 14).starts_with("fleet      1 process"), "{}", fitted(60, 14));
}

#[test]
fn once_prints_one_table_or_one_object() {
    let learner = Scripted::new(&format!("{LEARNER}zerofleet_process_start_seconds {}\n", unix_seconds() - 7200.0));
    let args = |json| Args {
        admins: vec![learner.address.to_string()],
        run: None,
        runs: PathBuf::from("runs"),
        prices: vec!["1.5".parse().unwrap()],
        interval: 2.0,
        once: true,
        json,
    };
    // The drain has already started, so that no poll waits.
    let drain = Drain::new();
    drain.start();
    let print = |json| {
        let mut out = Vec::new();
        args(json).watch(&drain, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let table = print(false);
    assert!(table.contains("1 process, 1 ready") && table.contains(" so far, 1.50 an hour"), "{table}");
    let object: Value = serde_json::from_str(&print(true)).unwrap();
    assert_eq!(object["processes"][0]["role"], "learner");
    assert_eq!(object["weights_version"], 12.0);
    let so_far = object["cost"]["so_far"].as_f64().unwrap();
    assert!((3.0..4.0).contains(&so_far), "two hours, and as long as this test takes: {so_far}");
}

#[test]
fn an_invalid_interval_is_rejected() {
    for interval in [0.0, -1.0, f64::NAN, 1e9] {
        let args = Args {
            admins: Vec::new(),
            run: None,
            runs: PathBuf::new(),
            prices: Vec::new(),
            interval,
            once: true,
            json: false,
        };
        assert!(args.watch(&Drain::new(), &mut Vec::new()).is_err(), "{interval}");
    }
}

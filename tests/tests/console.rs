//! The console of `zerofleet train`, over HTTP. The processes are found in `/proc`, thus on Linux only.
#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use tests::TrainingRun;

const DEADLINE: Duration = Duration::from_secs(90);

/// Returns the response to a request, or to a form, by the console that a supervisor has announced; `None` while it
/// does not respond.
fn response(run: &TrainingRun, path: &str, form: Option<&str>) -> Option<String> {
    let console = run.console()?;
    let address = console.strip_prefix("http://")?;
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).ok()?;
    let (method, form) = form.map_or(("GET", ""), |form| ("POST", form));
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}");
    stream.write_all(format!("{head}\r\nContent-Length: {}\r\n\r\n{form}", form.len()).as_bytes()).ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    Some(page)
}

/// Sends a confirmed change of the session from the page with the forms.
fn change(run: &TrainingRun, name: &str, value: &str) {
    let page = response(run, "/fleet/changes", None).unwrap();
    let (_, rest) = page.split_once("name=\"word\" value=\"").unwrap_or_else(|| panic!("{page}"));
    let word = rest.split('"').next().unwrap();
    let form = format!("word={word}&change={name}&value={value}&confirm=yes");
    let done = response(run, "/fleet/changes", Some(&form)).unwrap();
    assert!(done.starts_with("HTTP/1.1 303"), "{done}");
}

#[test]
fn a_killed_console_is_restarted_and_changes_from_its_pages_are_made_and_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--game", "tic_tac_toe", "--actors", "1"];
    let mut run = TrainingRun::with_console(folder.path(), folder.path(), &options).unwrap();
    run.start().unwrap();
    let shows = |run: &TrainingRun, part: &str| response(run, "/", None).is_some_and(|page| page.contains(part));
    run.until("the console shows the processes", DEADLINE, |run| shows(run, "processes respond")).unwrap();
    let killed = run.process_id("console").unwrap();
    run.kill("console").unwrap();
    run.until("the console shows the restart", DEADLINE, |run| shows(run, "console was restarted")).unwrap();
    assert!(run.process_id("console").is_some_and(|id| id != killed));
    change(&run, "actors", "2");
    let plays =
        |run: &TrainingRun| run.metric("actor-1", "zerofleet_actor_moves_total").is_some_and(|moves| moves > 0.0);
    run.until("the second actor plays", DEADLINE, plays).unwrap();
    change(&run, "actors", "1");
    for event in [
        "actors 1 → 2 until the session ends, by a visitor of this machine in the console",
        "actors 2 → 1 until the session ends, by a visitor of this machine in the console",
    ] {
        run.until(event, DEADLINE, |run| shows(run, event)).unwrap();
    }
    let is_gone = |run: &TrainingRun| run.metric("actor-1", "zerofleet_actor_moves_total").is_none();
    run.until("the second actor has ended", DEADLINE, is_gone).unwrap();
    let fleet = |run: &TrainingRun| response(run, "/fleet", None).unwrap();
    assert!(!fleet(&run).contains("actor-1 stopped responding"));
    change(&run, "drain", "actor-0");
    for event in
        ["actor-0 drains and starts again, by a visitor of this machine in the console", "actor-0 was restarted"]
    {
        run.until(event, DEADLINE, |run| shows(run, event)).unwrap();
    }
    change(&run, "samples_per_insert", "5");
    let event = "samples per insert 5, by a visitor of this machine in the console";
    run.until(event, DEADLINE, |run| shows(run, event)).unwrap();
    assert!(response(&run, "/fleet/changes", None).unwrap().contains("<strong>5.0</strong>"));
    assert!(!fleet(&run).contains("actor-1 stopped responding"), "after a later change");
    change(&run, "stop", "");
    let output = run.ended(DEADLINE).unwrap();
    assert!(output.status.success() && output.text.contains("stopping: draining every process"), "{}", output.text);
    assert!(output.text.contains("console was killed by signal 9, restarting in 0.5 s"), "{}", output.text);
    assert_eq!(run.process_id("console"), None, "the console ends with the training");
}
